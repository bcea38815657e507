#include "tools/serve/engine/lockstep.h"

#include <cstring>
#include <type_traits>

namespace dsf::serve {
namespace {

// A call on the wire: kind, step number, then its arguments. Every rank runs the same version, which the group checked
// at start.
enum class Kind : uint32_t { kOpen = 1, kClose, kStep, kStop };

class Writer {
 public:
  explicit Writer(Kind kind, uint64_t step) {
    put(kind);
    put(step);
  }
  template <class T>
  void put(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(std::as_bytes(std::span(&v, 1)));
  }
  void append(std::span<const std::byte> more) { bytes_.insert(bytes_.end(), more.begin(), more.end()); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  template <class T>
  T get() {
    T v{};
    take(std::as_writable_bytes(std::span(&v, 1)));
    return v;
  }
  void take(std::span<std::byte> to) {
    fine_ = fine_ && to.size() <= left_.size();
    if (!fine_ || to.empty()) return;  // an empty vector's data() may be null
    std::memcpy(to.data(), left_.data(), to.size());
    left_ = left_.subspan(to.size());
  }
  size_t left() const { return left_.size(); }
  bool whole() const { return fine_ && left_.empty(); }
  bool fine() const { return fine_; }

 private:
  std::span<const std::byte> left_;
  bool fine_ = true;
};

struct ItemHead {
  int32_t session = 0;
  uint32_t flags = 0;  // 1: want_logits, 2: want_all_logits
  uint64_t n_tokens = 0;
};

Error malformed() { return Error{Code::kBug, "call of rank 0", "cannot be read", {}, "divergence"}; }

bool of_caller(const Error& e) { return e.code == Code::kUsage || e.code == Code::kBusy; }

Result<void> run_step(Engine& engine, Reader& in) {
  std::vector<StepItem> items(in.get<uint32_t>());
  std::vector<std::vector<int32_t>> tokens(items.size());
  for (size_t i = 0; i < items.size() && in.fine(); ++i) {
    const auto head = in.get<ItemHead>();
    if (head.n_tokens * sizeof(int32_t) > in.left()) return fail(malformed());
    tokens[i].resize(head.n_tokens);
    in.take(std::as_writable_bytes(std::span(tokens[i])));
    items[i] = {.session = head.session,
                .tokens = tokens[i],
                .want_all_logits = (head.flags & 2) != 0,
                .want_logits = (head.flags & 1) != 0};
  }
  if (!in.whole()) return fail(malformed());
  const auto done = engine.step(items);
  return done || of_caller(done.error()) ? Result<void>{} : Result<void>(fail(done.error()));
}

Result<void> run_open(Engine& engine, Reader& in) {
  const auto want = in.get<SessionId>();
  if (!in.whole()) return fail(malformed());
  const auto id = engine.open();
  if (!id) return fail(id.error());
  if (*id != want)
    return fail(Code::kBug, "session " + std::to_string(want), "is session " + std::to_string(*id) + " on this rank",
                {}, "divergence");
  return {};
}

// False after the last call.
Result<bool> run_call(Engine& engine, comm::Communicator& comm, std::span<const std::byte> message,
                      const LockstepOptions& options) {
  Reader in(message);
  const auto kind = in.get<Kind>();
  comm.enter({"step", in.get<uint64_t>(), options.step_timeout_us});
  switch (kind) {
    case Kind::kOpen:
      DSF_OK(run_open(engine, in));
      return true;
    case Kind::kClose:
      engine.close(in.get<SessionId>());
      return true;
    case Kind::kStep:
      DSF_OK(run_step(engine, in));
      return true;
    case Kind::kStop:
      return false;
  }
  return fail(malformed());
}

}  // namespace

Leader::Leader(std::unique_ptr<Engine> own, comm::Communicator& comm, LockstepOptions options)
    : own_(std::move(own)), comm_(comm), options_(options) {}

Leader::~Leader() {
  (void)comm_.tell(Writer(Kind::kStop, steps_).bytes());  // a lost group needs no goodbye
}

Result<SessionId> Leader::open() {
  DSF_TRY(const SessionId id, own_->open());
  Writer call(Kind::kOpen, steps_);
  call.put(id);
  DSF_OK(comm_.tell(call.bytes()));
  return id;
}

void Leader::close(SessionId session) {
  Writer call(Kind::kClose, steps_);
  call.put(session);
  (void)comm_.tell(call.bytes());  // the next step reports a lost group
  own_->close(session);
}

Result<StepOutput> Leader::step(std::span<const StepItem> items) {
  Writer call(Kind::kStep, ++steps_);
  call.put(static_cast<uint32_t>(items.size()));
  for (const StepItem& item : items) {
    const uint32_t flags = (item.want_logits ? 1u : 0u) | (item.want_all_logits ? 2u : 0u);
    call.put(ItemHead{item.session, flags, item.tokens.size()});
    call.append(std::as_bytes(item.tokens));
  }
  comm_.enter({"step", steps_, options_.step_timeout_us});
  DSF_OK(comm_.tell(call.bytes()));
  auto out = own_->step(items);
  if (!out && !of_caller(out.error())) comm_.abort(out.error().line());
  return out;
}

std::vector<std::pair<std::string, std::string>> Leader::identity() const {
  auto pairs = own_->identity();
  pairs.emplace_back("world_size", std::to_string(comm_.world()));
  return pairs;
}

Result<void> follow(Engine& engine, comm::Communicator& comm, LockstepOptions options) {
  while (true) {
    DSF_TRY(const std::vector<std::byte> message, comm.hear());
    const auto more = run_call(engine, comm, message, options);
    if (!more) {
      comm.abort("rank " + std::to_string(comm.rank()) + ": " + more.error().line());
      return fail(more.error());
    }
    if (!*more) return {};
  }
}

}  // namespace dsf::serve
