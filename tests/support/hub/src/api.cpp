// The JSON side: repository and revision information, tree listing in pages, selected paths, references.
#include <algorithm>
#include <set>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "state.h"

namespace dsf::loopback_hub {
namespace {

using json::Value;

Value entry_value(const RepoFile& f, const std::string& path) {
  Value v = Value::object();
  v.set("type", "file");
  v.set("oid", f.git_sha1);
  v.set("size", f.size);
  v.set("path", path);
  if (f.lfs) {
    Value lfs = Value::object();
    lfs.set("oid", f.sha256);
    lfs.set("size", f.size);
    lfs.set("pointerSize", lfs_pointer(f).size());
    v.set("lfs", std::move(lfs));
  }
  return v;
}

Value info_value(const Repository& repo, bool blobs) {
  Value v = Value::object();
  v.set("_id", repo.commit.substr(0, 24));
  v.set("id", repo.id);
  v.set("modelId", repo.id);
  v.set("sha", repo.commit);
  v.set("lastModified", "2026-01-01T00:00:00.000Z");
  v.set("private", repo.is_private);
  v.set("gated", repo.gated.empty() ? Value(false) : Value(repo.gated));
  v.set("disabled", repo.disabled);
  v.set("tags", Value::array());
  v.set("downloads", 0);
  v.set("likes", 0);
  Value siblings = Value::array();
  for (const RepoFile& f : repo.files) {
    Value s = Value::object();
    s.set("rfilename", f.path);
    if (blobs) {
      s.set("size", f.size);
      s.set("blobId", f.git_sha1);
      if (f.lfs) {
        Value lfs = Value::object();
        lfs.set("sha256", f.sha256);
        lfs.set("size", f.size);
        lfs.set("pointerSize", lfs_pointer(f).size());
        s.set("lfs", std::move(lfs));
      }
    }
    siblings.push(std::move(s));
  }
  v.set("siblings", std::move(siblings));
  return v;
}

// Files and folders below a prefix, in path order, as the tree call lists them.
std::vector<Value> tree_values(const Repository& repo, const std::string& below, bool recursive) {
  const std::string prefix = below.empty() ? "" : below + "/";
  std::set<std::string> folders;
  std::vector<Value> out;
  for (const RepoFile& f : repo.files) {
    if (!f.path.starts_with(prefix)) continue;
    const std::string rest = f.path.substr(prefix.size());
    for (size_t slash = rest.find('/'); slash != std::string::npos; slash = rest.find('/', slash + 1)) {
      const std::string folder = prefix + rest.substr(0, slash);
      if (folders.insert(folder).second) {
        Value v = Value::object();
        v.set("type", "directory");
        v.set("oid", codec::git_blob_sha1(as_bytes(folder)));
        v.set("size", 0);
        v.set("path", folder);
        out.push_back(std::move(v));
      }
      if (!recursive) break;
    }
    if (recursive || rest.find('/') == std::string::npos) out.push_back(entry_value(f, f.path));
  }
  return out;
}

void add_faulty_entries(const Call& call, std::vector<Value>& entries, const Repository& repo) {
  if (repo.files.empty()) return;
  if (call.faulty("dup_path")) entries.push_back(entry_value(repo.files.front(), repo.files.front().path));
  if (call.faulty("bad_path")) entries.push_back(entry_value(repo.files.front(), call.fault->text));
}

void send_tree(Call& call, const Repository& repo, const std::string& below) {
  const std::string& query = call.request.query;
  std::vector<Value> entries = tree_values(repo, below, query_value(query, "recursive") == "true");
  if (entries.empty() && !below.empty()) return call.send_error(404, "EntryNotFound", "Entry not found");
  add_faulty_entries(call, entries, repo);
  const bool expand = query_value(query, "expand") == "true";
  const size_t page =
      std::max<size_t>(1, expand ? std::min<size_t>(50, call.state.options.page_size) : call.state.options.page_size);
  const size_t from = std::min<size_t>(parse_u64(query_value(query, "cursor")).value_or(0), entries.size());
  const size_t to = std::min(entries.size(), from + page);
  Value body = Value::array();
  for (size_t i = from; i < to; ++i) body.push(entries[i]);
  http::Headers headers;
  if (to < entries.size() || call.faulty("page_loop")) {
    const std::string path = call.request.target.substr(0, call.request.target.find('?'));
    headers.emplace_back("Link", "<" + call.state.hub_origin + path + "?recursive=" + query_value(query, "recursive") +
                                     "&expand=" + (expand ? "true" : "false") + "&cursor=" +
                                     std::to_string(call.faulty("page_loop") ? from : to) + ">; rel=\"next\"");
  }
  call.send_json(200, body, std::move(headers));
}

std::vector<std::string> wanted_paths(const http::ServerRequest& request) {
  std::vector<std::string> paths;
  if (request.body.starts_with("{")) {
    const auto value = json::parse(request.body, "body");
    const Value* list = value ? value->find("paths") : nullptr;
    for (const Value& v : list != nullptr && list->is_array() ? list->as_array() : json::Array{}) {
      if (v.is_string()) paths.push_back(v.as_string());
    }
    return paths;
  }
  std::string_view form = request.body;
  while (!form.empty()) {
    const size_t end = std::min(form.find('&'), form.size());
    std::string pair(form.substr(0, end));
    std::replace(pair.begin(), pair.end(), '+', ' ');
    if (pair.starts_with("paths=")) paths.push_back(http::percent_decode(pair.substr(6)));
    form.remove_prefix(std::min(end + 1, form.size()));
  }
  return paths;
}

void send_paths_info(Call& call, const Repository& repo) {
  Value out = Value::array();
  for (const std::string& path : wanted_paths(call.request)) {
    if (const RepoFile* f = repo.find(path)) out.push(entry_value(*f, f->path));
  }
  call.send_json(200, out);
}

void send_refs(Call& call, const Repository& repo) {
  Value out = Value::object();
  for (const char* list : {"branches", "converts", "tags", "pullRequests"}) out.set(list, Value::array());
  for (const auto& [name, kind] : repo.refs) {
    Value v = Value::object();
    v.set("name", name);
    v.set("ref", kind == "branch" ? "refs/heads/" + name : kind == "tag" ? "refs/tags/" + name : name);
    v.set("targetCommit", repo.commit);
    out.find(kind == "branch" ? "branches" : kind == "tag" ? "tags" : "pullRequests")->push(std::move(v));
  }
  call.send_json(200, out);
}

bool is_verb(const std::string& s) { return s == "revision" || s == "tree" || s == "refs" || s == "paths-info"; }

}  // namespace

void handle_api(Call& call) {
  const std::vector<std::string> parts =
      split_target(call.request.target);  // api, models, org, name, verb, rev, sub...
  if (parts.size() == 2 && parts[1] == "whoami-v2") {
    if (call.log.authorization != "Bearer " + call.state.options.token)
      return call.send_error(401, "", "Invalid credentials in Authorization header");
    Value me = Value::object();
    me.set("name", "tester");
    me.set("type", "user");
    return call.send_json(200, me);
  }
  if (parts.size() < 3 || parts[1] != "models") return call.send_error(404, "", "Not found");
  size_t next = parts.size() > 3 && !is_verb(parts[3]) ? 4 : 3;
  const std::string id = next == 4 ? parts[2] + "/" + parts[3] : parts[2];
  const auto repo = call.state.repository(id);
  if (!allowed(call, id, repo)) return;
  const std::string verb = next < parts.size() ? parts[next] : "";
  const std::string revision = next + 1 < parts.size() ? parts[next + 1] : "main";
  if (verb == "refs") return send_refs(call, *repo);
  if (!repo->knows(revision)) return call.send_error(404, "RevisionNotFound", "Invalid rev id: " + revision);
  std::string below;
  for (size_t i = next + 2; i < parts.size(); ++i) below += (below.empty() ? "" : "/") + parts[i];
  if (verb.empty() || verb == "revision")
    return call.send_json(200, info_value(*repo, query_value(call.request.query, "blobs") == "true"));
  if (verb == "tree") return send_tree(call, *repo, below);
  if (verb == "paths-info") return send_paths_info(call, *repo);
  call.send_error(404, "", "Not found");
}

}  // namespace dsf::loopback_hub
