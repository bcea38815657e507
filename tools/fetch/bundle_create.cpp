#include <algorithm>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/cli/log.h"
#include "dsf/codec/journal.h"
#include "dsf/codec/zstd.h"
#include "dsf/manifest/pin.h"
#include "dsf/manifest/record.h"
#include "tools/fetch/bundle.h"
#include "tools/fetch/bundle_layout.h"
#include "tools/fetch/bundle_volume.h"
#include "tools/fetch/target.h"

namespace dsf::fetch {
namespace {

constexpr uint64_t kReadBytes = 1 << 20;

// A folder without a pin describes itself: the record as a pin, without times and hosts.
manifest::Pin pin_of_record(const manifest::FetchRecord& r) {
  manifest::Pin pin;
  pin.name = r.repo.substr(r.repo.rfind('/') + 1);
  pin.source.endpoint = r.endpoint;
  pin.source.repo = r.repo;
  pin.source.requested_revision = r.revision;
  pin.source.revision = r.revision;
  pin.complete = r.complete;
  for (const manifest::FetchedFile& f : r.files) {
    manifest::PinFile& p = pin.files.emplace_back();
    p.path = f.path;
    p.size = f.size;
    p.sha256 = f.sha256;
    p.git_sha1 = f.git_sha1;
    p.lfs = f.git_sha1.empty();
    p.role = manifest::guess_role(f.path);
  }
  pin.sort();
  return pin;
}

Result<Bundle> plan_bundle(const BundleCreateOptions& o) {
  manifest::Pin pin;
  std::string bytes, signature;
  if (o.pin.empty()) {
    DSF_TRY(const manifest::FetchRecord record, manifest::load_fetch_record(o.dir));
    pin = pin_of_record(record);
    bytes = manifest::write(pin);
  } else {
    DSF_TRY(bytes, io::read_text(o.pin, manifest::kMaxPinBytes));
    DSF_TRY(pin, manifest::parse_pin(bytes, o.pin.string()));
    if (const auto text = io::read_text(o.pin.string() + ".sig", 4096)) signature = *text;
  }
  if (pin.open()) {
    return fail(Code::kUsage, o.pin.string(),
                "the pin is open (" + manifest::printable(pin.open_items(1).front()) + ")",
                "fill it with dsf-fetch pin --update", "open_pin");
  }
  if (o.base.empty()) return bundle_of(pin, bytes, signature, nullptr);
  DSF_TRY(const manifest::Pin base, manifest::load_pin(o.base));
  return bundle_of(pin, bytes, signature, &base);
}

// The raw stream, frame after frame, each file's digest proved at its end.
class RawStream {
 public:
  RawStream(const BundleCreateOptions& o, const Bundle& bundle, const std::vector<Member>& members)
      : dir_(o.dir), bundle_(bundle), members_(members) {}

  Result<std::string> read(const Frame& frame) {
    const Member& m = members_[frame.member];
    if (!m.file) return fixed_bytes(m, frame.begin, frame.end);
    DSF_OK(open(frame.member, std::max(frame.begin, m.content()) - m.content()));
    const uint64_t from = std::clamp(frame.begin, m.content(), m.content() + m.size);
    const uint64_t to = std::clamp(frame.end, m.content(), m.content() + m.size);
    std::string out = fixed_bytes(m, frame.begin, std::max(from, frame.begin));
    const size_t at = out.size();
    out.resize(at + static_cast<size_t>(to - from));
    const std::span<char> content(out.data() + at, static_cast<size_t>(to - from));
    DSF_OK(io::read_at(fd_, from - m.content(), std::as_writable_bytes(content)));
    hash_.update(std::as_bytes(content));
    hashed_ = to - m.content();
    io::drop_page_cache(fd_, from - m.content(), to - from);
    out += fixed_bytes(m, std::max(to, frame.begin), frame.end);
    return frame.end == m.end() ? proved(m, std::move(out)) : Result<std::string>(std::move(out));
  }

 private:
  // A run that continues inside a file hashes what came before.
  Result<void> open(size_t member, uint64_t position) {
    if (member == open_member_) return {};
    const BundleFile& f = bundle_.files[*members_[member].file];
    DSF_TRY(fd_, io::open_read(dir_ / f.path));
    DSF_TRY(const uint64_t size, io::file_size(fd_));
    if (size != f.size) {
      return fail(Code::kContent, manifest::printable(f.path),
                  "has " + std::to_string(size) + " bytes, expected " + std::to_string(f.size),
                  "run dsf-fetch get again", "size");
    }
    open_member_ = member;
    hash_ = codec::Sha256();
    std::vector<std::byte> buffer(kReadBytes);
    for (hashed_ = 0; hashed_ < std::min(position, size);) {
      const std::span<std::byte> block(
          buffer.data(), static_cast<size_t>(std::min<uint64_t>(kReadBytes, std::min(position, size) - hashed_)));
      DSF_OK(io::read_at(fd_, hashed_, block));
      hash_.update(block);
      hashed_ += block.size();
    }
    return {};
  }

  Result<std::string> proved(const Member& m, std::string bytes) {
    const BundleFile& f = bundle_.files[*m.file];
    const std::string got = hash_.finish().hex();
    if (got == f.sha256) return bytes;
    return fail(Code::kContent, manifest::printable(f.path), "sha256 differs (want " + f.sha256 + ", got " + got + ")",
                "run dsf-fetch get --force again", "digest_mismatch");
  }

  std::filesystem::path dir_;
  const Bundle& bundle_;
  const std::vector<Member>& members_;
  size_t open_member_ = SIZE_MAX;
  io::Fd fd_;
  codec::Sha256 hash_;
  uint64_t hashed_ = 0;
};

class Creator {
 public:
  Creator(const BundleCreateOptions& o, Bundle bundle, const std::function<bool()>& stop)
      : o_(o),
        bundle_(std::move(bundle)),
        json_(bundle_.json()),
        id_(codec::sha256(json_).hex()),
        members_(members_of(bundle_, json_, {bundle_.manifest.size(), bundle_.signature.size()})),
        frames_(frames_of(members_)),
        stream_(o, bundle_, members_),
        stop_(stop) {}

  Result<int> run(Events& events) {
    DSF_TRY(const bool whole, whole_already());
    if (whole) {
      if (!o_.quiet) cli::log(cli::Level::kInfo, "nothing to do", {{"bundle", o_.bundle.string()}});
      return 0;
    }
    json::Value header = json::Value::object();
    header.set("bundle", id_);
    header.set("level", o_.level);
    header.set("volume_bytes", o_.volume_bytes);
    DSF_TRY(codec::Journal journal, codec::Journal::open(o_.bundle.string() + ".journal", json::dump(header)));
    DSF_OK(keep_finished(journal));
    cli::Progress progress("bundle " + bundle_.name, members_.back().end(), !o_.quiet);
    while (next_ < frames_.size()) DSF_OK(write_volume(journal, progress));
    std::string sums;
    for (size_t i = 0; i < digests_.size(); ++i)
      sums += digests_[i].hex() + "  " + volume_path(o_.bundle.filename(), i).string() + "\n";
    DSF_OK(io::write_file_atomic(sums_path(o_.bundle), sums));
    DSF_OK(io::remove_file(o_.bundle.string() + ".journal"));
    events.emit("summary", {{"result", "ok"},
                            {"bundle", id_},
                            {"volumes", digests_.size()},
                            {"files", bundle_.files.size()},
                            {"raw_bytes", members_.back().end()}});
    if (!events.enabled() && !o_.quiet)
      std::printf("%s: %zu volumes, %zu files\n", o_.bundle.c_str(), digests_.size(), bundle_.files.size());
    return 0;
  }

 private:
  // A finished bundle of the same content: its list of sums is written last.
  Result<bool> whole_already() const {
    std::error_code ignored;
    if (!std::filesystem::exists(sums_path(o_.bundle), ignored)) return false;
    DSF_TRY(const Volume first, Volume::open(volume_path(o_.bundle, 0)));
    if (first.bundle == id_) return true;
    return fail(Code::kLocal, o_.bundle.string(), "exists and holds other content", "give another name, or remove it",
                "conflict");
  }

  // Volumes that the journal names and whose bytes are still those it says.
  Result<void> keep_finished(const codec::Journal& journal) {
    uint64_t raw = 0;
    for (uint64_t i = 0; journal.claims().contains(i); ++i) {
      const auto digest = codec::sha256_file(volume_path(o_.bundle, i), [this](uint64_t) { return !stop_(); });
      if (!digest || digest->hex() != journal.claims().at(i)) break;
      DSF_TRY(const Volume v, Volume::open(volume_path(o_.bundle, i)));
      if (v.bundle != id_ || v.index != i || v.raw_begin != raw) break;
      raw = v.raw_end;
      digests_.push_back(*digest);
    }
    while (next_ < frames_.size() && frames_[next_].begin < raw) ++next_;
    return {};
  }

  Result<void> write_volume(codec::Journal& journal, cli::Progress& progress) {
    const uint64_t index = digests_.size();
    DSF_TRY(VolumeWriter w, VolumeWriter::create(volume_path(o_.bundle, index), id_, index, frames_[next_].begin));
    while (next_ < frames_.size()) {
      if (stop_())
        return fail(Code::kLocal, o_.bundle.string(), "stopped", "run the command again to go on", "stopped");
      if (pending_.empty()) {
        DSF_TRY(const std::string raw, stream_.read(frames_[next_]));
        pending_ = codec::zstd_compress(as_bytes(raw), level_of(frames_[next_]));
      }
      if (w.frames() > 0 && w.size_with(pending_.size()) > o_.volume_bytes) break;  // it opens the next volume
      DSF_OK(w.add(pending_, frames_[next_].end - frames_[next_].begin));
      pending_.clear();
      progress.update(frames_[next_].end);
      ++next_;
    }
    DSF_TRY(const codec::Digest digest, w.finish());
    digests_.push_back(digest);
    return journal.add(index, digest.hex());
  }

  int level_of(const Frame& frame) const {
    if (o_.level != 0) return o_.level;
    return manifest::guess_role(members_[frame.member].path) == manifest::Role::kWeights ? 1 : 3;
  }

  const BundleCreateOptions& o_;
  const Bundle bundle_;
  const std::string json_, id_;
  const std::vector<Member> members_;
  const std::vector<Frame> frames_;
  RawStream stream_;
  const std::function<bool()>& stop_;
  size_t next_ = 0;      // frame
  std::string pending_;  // frame next_, compressed, when it did not fit
  std::vector<codec::Digest> digests_;
};

}  // namespace

Result<int> run_bundle_create(const BundleCreateOptions& o, const std::function<bool()>& stop, Events& events) {
  DSF_TRY(Bundle bundle, plan_bundle(o));
  DSF_OK(io::make_dirs(o.bundle.has_parent_path() ? o.bundle.parent_path() : "."));
  return Creator(o, std::move(bundle), stop).run(events);
}

}  // namespace dsf::fetch
