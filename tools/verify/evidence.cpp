#include "tools/verify/evidence.h"

#include <cstring>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/path.h"
#include "dsf/manifest/pin.h"
#include "tools/verify/sums.h"

namespace dsf::verify {
namespace {

// manifests/<name>.pieces/<sha256 of the content>.bin: raw digests, whose own digest stands in the pin.
Result<void> load_pieces(const std::filesystem::path& pin, const manifest::PinFile& f, Expected& e) {
  auto folder = pin;
  folder.replace_extension(".pieces");
  const auto path = folder / (f.sha256 + ".bin");
  DSF_TRY(const std::string raw, io::read_text(path, uint64_t{64} << 20));
  const bool fits =
      f.size && f.pieces->size > 0 && raw.size() == ceil_div(*f.size, f.pieces->size) * sizeof(codec::Digest::bytes);
  if (!fits || codec::sha256(raw).hex() != f.pieces->sha256)
    return fail(Code::kContent, path.string(), "is not the list of pieces that the pin names",
                "take it from where the pin comes from", "pieces");
  e.piece_bytes = f.pieces->size;
  for (size_t at = 0; at < raw.size(); at += sizeof(codec::Digest::bytes)) {
    codec::Digest d;
    std::memcpy(d.bytes.data(), raw.data() + at, d.bytes.size());
    e.pieces.push_back(d);
  }
  return {};
}

Result<Evidence> from_pin(const Plan& plan) {
  DSF_TRY(const manifest::Deployment deployment, manifest::load_deployment(plan.pin));
  Evidence out{.kind = "pin", .complete = true};
  for (const manifest::PlacedPin& placed : deployment.pins) {
    if (placed.pin.open() && !plan.allow_open) {
      const auto items = placed.pin.open_items(1);
      return fail(Code::kUsage, placed.file.string(),
                  "is still open (" + (items.empty() ? std::string("expectations not met") : items.front()) + ")",
                  "fill it with dsf-fetch pin --update, or pass --allow-open", "open_pin");
    }
    const std::string digest = codec::sha256(placed.bytes).hex();
    out.inputs.push_back({placed.file.filename().string(), digest});
    if (deployment.pins.size() == 1) out.pin_sha256 = digest;
    out.complete = out.complete && placed.pin.complete;
    size_t open = 0;
    for (const manifest::PinFile& f : placed.pin.files) {
      Expected e{.size = f.size, .sha256 = f.sha256, .git_sha1 = f.sha256.empty() ? f.git_sha1 : ""};
      if (f.pieces) DSF_OK(load_pieces(placed.file, f, e));
      if (f.safetensors) {
        e.header_sha256 = f.safetensors->header_sha256;
        e.header_bytes = f.safetensors->header_bytes;
      }
      open += f.open() ? 1 : 0;
      out.files[placed.subfolder.empty() ? f.path : placed.subfolder + "/" + f.path] = std::move(e);
    }
    out.origins.push_back({placed.pin.source.repo, placed.pin.source.revision,
                           placed.subfolder.empty() ? "" : placed.subfolder + "/", placed.pin.complete});
    if (open > 0)
      out.unchecked.push_back(std::to_string(open) + " files whose size or digest " + placed.pin.name + " leaves open");
  }
  return out;
}

Result<Evidence> from_sums(const std::filesystem::path& path) {
  DSF_TRY(const std::string text, io::read_text(path, uint64_t{64} << 20));
  DSF_TRY(const auto sums, parse_sums(text, path.string()));
  Evidence out{.kind = "SHA256SUMS", .inputs = {{path.filename().string(), codec::sha256(text).hex()}}};
  for (const auto& [file, digest] : sums) out.files[file].sha256 = digest;
  out.unchecked.push_back("where the files come from: SHA256SUMS names no revision");
  return out;
}

Result<Evidence> from_fetch_record(const std::filesystem::path& dir) {
  DSF_TRY(const manifest::FetchRecord record, manifest::load_fetch_record(dir));
  DSF_TRY(const codec::Digest digest, codec::sha256_file(dir / manifest::kFetchRecordPath));
  Evidence out{.kind = "fetch record",
               .complete = record.complete,
               .inputs = {{std::string(manifest::kFetchRecordPath), digest.hex()}}};
  out.pin_sha256 = record.pin_sha256;
  out.origins.push_back({record.repo, record.revision, "", record.complete});
  for (const manifest::FetchedFile& f : record.files) out.files[f.path] = {.size = f.size, .sha256 = f.sha256};
  out.unchecked.push_back(
      "that these are the files you want: the record says what was fetched, a pin would say what should be");
  return out;
}

// .cache/huggingface/download/<path>.metadata: commit, etag (SHA-256 of LFS files, git blob id of others), time.
Result<Evidence> from_hf(const std::filesystem::path& dir) {
  const auto root = dir / ".cache" / "huggingface" / "download";
  DSF_TRY(const auto files, io::list_files(root));
  constexpr std::string_view kSuffix = ".metadata";
  Evidence out{.kind = "hf metadata (self-declared)"};
  for (const std::string& name : files) {
    if (!name.ends_with(kSuffix)) continue;
    DSF_TRY(const std::string text, io::read_text(root / name, 4096));
    const size_t first = text.find('\n'), second = first == std::string::npos ? first : text.find('\n', first + 1);
    if (second == std::string::npos) continue;  // torn
    const std::string etag = text.substr(first + 1, second - first - 1),
                      path = name.substr(0, name.size() - kSuffix.size());
    if (!manifest::path_problem(path).empty()) continue;
    if (codec::Digest::from_hex(etag))
      out.files[path].sha256 = etag;
    else if (etag.size() == 40 && from_hex(etag))
      out.files[path].git_sha1 = etag;
  }
  if (out.files.empty())
    return fail(Code::kMissing, root.string(), "holds no metadata of the hf client", "leave out --from-hf", "missing");
  out.unchecked.push_back("where the files come from: the hf client's notes are its own word, and nothing proves them");
  return out;
}

}  // namespace

Result<Evidence> load_evidence(const Plan& plan) {
  if (plan.from_hf) return from_hf(plan.dir);
  if (!plan.pin.empty()) return from_pin(plan);
  if (!plan.sums.empty()) return from_sums(plan.sums);
  std::error_code ec;
  if (std::filesystem::exists(plan.dir / "SHA256SUMS", ec)) return from_sums(plan.dir / "SHA256SUMS");
  if (std::filesystem::exists(plan.dir / manifest::kFetchRecordPath, ec)) return from_fetch_record(plan.dir);
  Evidence none{.kind = "none"};
  none.unchecked.push_back("the content of any file: there is no pin, SHA256SUMS or fetch record to compare with");
  return none;
}

}  // namespace dsf::verify
