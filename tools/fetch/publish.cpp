#include "tools/fetch/publish.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>

#include "dsf/base/numeric.h"
#include "dsf/cli/log.h"
#include "dsf/cli/version.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/pin.h"
#include "dsf/manifest/record.h"
#include "tools/fetch/target.h"

namespace dsf::fetch {
namespace {

using How = PublishOptions::How;
constexpr std::string_view kSchema = "hub-published";
constexpr std::string_view kManifest = "manifest.json", kSums = "SHA256SUMS";

struct Stat {
  uint64_t size = 0, inode = 0, dev = 0;
  int64_t mtime_ns = 0;
  bool operator==(const Stat&) const = default;
};

std::optional<Stat> stat_of(const std::filesystem::path& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return std::nullopt;
  return Stat{static_cast<uint64_t>(st.st_size), st.st_ino, st.st_dev,
              int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec};
}

// Small files of the checkpoint: always copied, so that a later edit of the share never reaches the source.
bool is_data(const manifest::FetchedFile& f) { return manifest::guess_role(f.path) == manifest::Role::kWeights; }

// Which published file has which digest and stat, from the manifest of the last publication.
std::map<std::string, std::pair<std::string, Stat>> published_before(const std::filesystem::path& dst) {
  std::map<std::string, std::pair<std::string, Stat>> out;
  const auto record = manifest::load_record(dst / kManifest, kSchema);
  if (!record) return out;
  for (const json::Value& item : record->items) {
    const json::Cursor c(item, std::string(kManifest));
    const auto path = c.string_at("path"), sha256 = c.string_at("sha256");
    const auto size = c.integer_at("size", 0), inode = c.integer_or("inode", 0), mtime = c.integer_or("mtime_ns", 0),
               dev = c.integer_or("dev", 0);
    if (path && sha256 && size && inode && mtime && dev)
      out[*path] = {*sha256,
                    {static_cast<uint64_t>(*size), static_cast<uint64_t>(*inode), static_cast<uint64_t>(*dev), *mtime}};
  }
  return out;
}

class Publisher {
 public:
  Publisher(const PublishOptions& o, std::filesystem::path dst, const manifest::FetchRecord& record,
            const std::function<bool()>& stop)
      : o_(o), dst_(std::move(dst)), record_(record), before_(published_before(dst_)), stop_(stop) {}

  Result<void> run() {
    if (!o_.dry_run) DSF_OK(io::make_dirs(dst_));
    std::vector<const manifest::FetchedFile*> order;
    for (const manifest::FetchedFile& f : record_.files) order.push_back(&f);
    std::stable_partition(order.begin(), order.end(), [](const auto* f) { return is_data(*f); });
    for (const auto* f : order) {
      if (stop_()) return fail(Code::kLocal, dst_.string(), "stopped", "run the command again to go on", "stopped");
      DSF_OK(publish(*f));
    }
    std::string sums;
    for (const manifest::FetchedFile& f : record_.files) sums += f.sha256 + "  " + f.path + "\n";
    DSF_OK(publish_text(std::string(kSums), sums));
    return publish_text(std::string(kManifest), manifest_text());
  }
  size_t changed() const { return changed_; }

 private:
  Result<void> publish(const manifest::FetchedFile& f) {
    const auto from = o_.dir / f.path, to = dst_ / f.path;
    DSF_OK(check_source(f, from));
    DSF_TRY(const bool there, has(f, from, to));
    if (there) return {};
    ++changed_;
    if (o_.dry_run) {
      std::printf("publish %s\n", manifest::printable(f.path).c_str());
      return {};
    }
    DSF_OK(io::make_dirs(to.parent_path()));
    const auto temporary = temporary_of(to);
    const bool linked = is_data(f) && (o_.how == How::kHardlink || o_.how == How::kAuto) && link(from, temporary);
    if (!linked && is_data(f) && o_.how == How::kHardlink)
      return fail(io::errno_error(to, "cannot be a hard link of " + from.string()));
    if (!linked) DSF_OK(copy(f, from, temporary));
    return rename_over(temporary, to);
  }

  // The record vouches for the source as long as its stat is the same.
  Result<void> check_source(const manifest::FetchedFile& f, const std::filesystem::path& from) const {
    const auto now = stat_of(from);
    if (now && now->size == f.size && now->mtime_ns == f.mtime_ns && now->inode == f.inode) return {};
    DSF_TRY(const codec::Digest digest, codec::sha256_file(from));
    if (digest.hex() == f.sha256) return {};
    return fail(Code::kContent, manifest::printable(f.path),
                "changed since it was fetched (want " + f.sha256 + ", got " + digest.hex() + ")",
                "run dsf-fetch get --force --overwrite", "digest_mismatch");
  }

  // Published already: the source's own inode, an unchanged file of the last manifest, or equal bytes.
  Result<bool> has(const manifest::FetchedFile& f, const std::filesystem::path& from,
                   const std::filesystem::path& to) const {
    const auto there = stat_of(to), source = stat_of(from);
    if (!there || there->size != f.size) return false;
    if (source && there->inode == source->inode && there->dev == source->dev) return true;
    const auto before = before_.find(f.path);
    if (before != before_.end() && before->second.first == f.sha256 && before->second.second == *there) return true;
    DSF_TRY(const codec::Digest digest, codec::sha256_file(to));
    return digest.hex() == f.sha256;
  }

  static bool link(const std::filesystem::path& from, const std::filesystem::path& to) {
    return ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), 0) == 0;
  }

  // Copied bytes are hashed on their way: a disk that reads something else than the record says is found here.
  Result<void> copy(const manifest::FetchedFile& f, const std::filesystem::path& from,
                    const std::filesystem::path& to) const {
    DSF_TRY(const io::Fd in, io::open_read(from));
    DSF_TRY(io::Fd out, io::open_write(to));
    const bool cloned = o_.how == How::kReflink && ::ioctl(out.get(), FICLONE, in.get()) == 0;
    if (!cloned && o_.how == How::kReflink)
      return fail(io::errno_error(to, "cannot share blocks with " + from.string()));
    codec::Sha256 hash;
    std::vector<std::byte> buffer(kMiB);
    for (uint64_t at = 0; !cloned && at < f.size;) {
      if (stop_()) return fail(Code::kLocal, to.string(), "stopped", "run the command again to go on", "stopped");
      const std::span<std::byte> block(buffer.data(), static_cast<size_t>(std::min<uint64_t>(kMiB, f.size - at)));
      DSF_OK(io::read_at(in, at, block));
      hash.update(block);
      DSF_OK(io::write_all(out, block));
      at += block.size();
    }
    if (!cloned && hash.finish().hex() != f.sha256) {
      (void)io::remove_file(to);
      return fail(Code::kContent, manifest::printable(f.path), "is read with another sha256 than it was fetched with",
                  "check the disk, and run dsf-fetch get --force", "digest_mismatch");
    }
    DSF_OK(io::sync(out));
    io::drop_page_cache(in, 0, 0);
    io::drop_page_cache(out, 0, 0);
    return out.close();
  }

  static std::filesystem::path temporary_of(const std::filesystem::path& to) {
    std::array<char, 256> host{};
    (void)::gethostname(host.data(), host.size() - 1);
    return to.parent_path() /
           ("." + to.filename().string() + "." + host.data() + "." + std::to_string(::getpid()) + ".tmp");
  }

  static Result<void> rename_over(const std::filesystem::path& from, const std::filesystem::path& to) {
    const auto before = stat_of(from);
    auto renamed = io::rename_file(from, to);
    // Over NFS a lost reply makes a successful rename look like ENOENT.
    const auto after = stat_of(to);
    if (!renamed && before && after && before->inode == after->inode) renamed = Result<void>();
    if (!renamed) (void)io::remove_file(from);
    DSF_OK(renamed);
    return io::sync_dir(to.parent_path());
  }

  Result<void> publish_text(const std::string& name, const std::string& text) {
    const auto there = io::read_text(dst_ / name, 256 * kMiB);
    if (there && *there == text) return {};
    ++changed_;
    return o_.dry_run ? Result<void>() : io::write_file_atomic(dst_ / name, text);
  }

  std::string manifest_text() const {
    manifest::Record r;
    r.schema = kSchema;
    r.created_by = cli::tool_id("dsf-fetch");
    if (!record_.pin_sha256.empty()) r.inputs = {{record_.pin_name, record_.pin_sha256}};
    for (const manifest::FetchedFile& f : record_.files) {
      const Stat st = stat_of(dst_ / f.path).value_or(Stat{});
      json::Value v = json::Value::object();
      v.set("path", f.path);
      v.set("size", f.size);
      v.set("sha256", f.sha256);
      v.set("mtime_ns", st.mtime_ns);
      v.set("inode", static_cast<int64_t>(st.inode));
      v.set("dev", static_cast<int64_t>(st.dev));
      r.items.push_back(std::move(v));
    }
    r.more = {{"repo", record_.repo}, {"revision", record_.revision}, {"complete", record_.complete}};
    return manifest::write(r);
  }

  const PublishOptions& o_;
  const std::filesystem::path dst_;
  const manifest::FetchRecord& record_;
  const std::map<std::string, std::pair<std::string, Stat>> before_;
  const std::function<bool()>& stop_;
  size_t changed_ = 0;
};

// DST -> DST@abc, by a new link and a rename: readers of the old tree keep it.
Result<void> switch_link(const std::filesystem::path& link, const std::string& target) {
  std::error_code error;
  if (std::filesystem::is_symlink(link, error) && std::filesystem::read_symlink(link, error) == target) return {};
  if (std::filesystem::exists(link, error) && !std::filesystem::is_symlink(link, error)) {
    return fail(Code::kLocal, link.string(), "exists and is no symbolic link",
                "give another name, or leave --versioned away", "conflict");
  }
  const auto temporary = link.string() + "." + std::to_string(::getpid()) + ".tmp";
  std::filesystem::remove(temporary, error);
  if (::symlink(target.c_str(), temporary.c_str()) != 0) return fail(io::errno_error(temporary, "cannot link"));
  DSF_OK(io::rename_file(temporary, link));
  return io::sync_dir(link.parent_path());
}

}  // namespace

Result<int> run_publish(const PublishOptions& o, const std::function<bool()>& stop, Events& events) {
  DSF_TRY(const manifest::FetchRecord record, manifest::load_fetch_record(o.dir));
  std::filesystem::path dst = o.dst;
  if (!dst.has_filename()) dst = dst.parent_path();  // "share/" as well as "share"
  const auto link = dst;
  if (o.versioned) dst = dst.string() + "@" + record.revision.substr(0, 12);
  Publisher publisher(o, dst, record, stop);
  DSF_OK(publisher.run());
  if (o.versioned && !o.dry_run) DSF_OK(switch_link(link, dst.filename().string()));
  events.emit(
      "summary",
      {{"result", "ok"}, {"files", record.files.size()}, {"changed", publisher.changed()}, {"to", dst.string()}});
  if (publisher.changed() == 0 && !o.quiet)
    cli::log(cli::Level::kInfo, "nothing to do", {{"files", std::to_string(record.files.size())}});
  if (!events.enabled() && !o.quiet) std::printf("%s\n", dst.c_str());
  return 0;
}

}  // namespace dsf::fetch
