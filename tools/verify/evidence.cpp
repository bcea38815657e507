#include "tools/verify/evidence.h"

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/pin.h"
#include "tools/verify/sums.h"

namespace dsf::verify {
namespace {

Result<Evidence> from_pin(const Plan& plan) {
  DSF_TRY(const manifest::Deployment deployment, manifest::load_deployment(plan.pin));
  Evidence out{.kind = "pin", .complete = true};
  for (const manifest::PlacedPin& placed : deployment.pins) {
    if (placed.pin.open() && !plan.allow_open) {
      const auto items = placed.pin.open_items(1);
      return fail(Code::kUsage, placed.file.string(), "is still open (" + (items.empty() ? std::string("expectations not met") : items.front()) + ")",
                  "fill it with dsf-fetch pin --update, or pass --allow-open", "open_pin");
    }
    const std::string digest = codec::sha256(placed.bytes).hex();
    out.inputs.push_back({placed.file.filename().string(), digest});
    if (deployment.pins.size() == 1) out.pin_sha256 = digest;
    out.complete = out.complete && placed.pin.complete;
    size_t open = 0;
    for (const manifest::PinFile& f : placed.pin.files) {
      Expected e{.size = f.size, .sha256 = f.sha256};
      if (f.safetensors) {
        e.header_sha256 = f.safetensors->header_sha256;
        e.header_bytes = f.safetensors->header_bytes;
      }
      open += f.open() ? 1 : 0;
      out.files[placed.subfolder.empty() ? f.path : placed.subfolder + "/" + f.path] = std::move(e);
    }
    if (open > 0) out.unchecked.push_back(std::to_string(open) + " files whose size or digest " + placed.pin.name + " leaves open");
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
  Evidence out{.kind = "fetch record", .complete = record.complete, .inputs = {{std::string(manifest::kFetchRecordPath), digest.hex()}}};
  out.pin_sha256 = record.pin_sha256;
  for (const manifest::FetchedFile& f : record.files) out.files[f.path] = {.size = f.size, .sha256 = f.sha256};
  out.unchecked.push_back("that these are the files you want: the record says what was fetched, a pin would say what should be");
  return out;
}

}  // namespace

Result<Evidence> load_evidence(const Plan& plan) {
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
