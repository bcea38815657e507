#include "dsf/codec/zstd.h"

#include <zstd.h>

#include <vector>

#include "dsf/base/check.h"

namespace dsf::codec {

struct ZstdWriter::Impl {
  Sink sink;
  ZSTD_CCtx* ctx = ZSTD_createCCtx();
  std::vector<std::byte> buffer = std::vector<std::byte>(ZSTD_CStreamOutSize());
  bool finished = false;
  ~Impl() { ZSTD_freeCCtx(ctx); }

  Result<void> run(std::span<const std::byte> data, ZSTD_EndDirective mode) {
    ZSTD_inBuffer in{data.data(), data.size(), 0};
    while (true) {
      ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
      const size_t left = ZSTD_compressStream2(ctx, &out, &in, mode);
      if (ZSTD_isError(left) != 0) return fail(Code::kBug, "zstd", ZSTD_getErrorName(left));
      if (out.pos > 0) DSF_OK(sink(std::span(buffer).first(out.pos)));
      if (mode == ZSTD_e_continue ? in.pos == in.size : left == 0) return {};
    }
  }
};

ZstdWriter::ZstdWriter(Sink sink, int level) : impl_(std::make_unique<Impl>()) {
  impl_->sink = std::move(sink);
  ZSTD_CCtx_setParameter(impl_->ctx, ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(impl_->ctx, ZSTD_c_checksumFlag, 1);
}
ZstdWriter::~ZstdWriter() = default;
ZstdWriter::ZstdWriter(ZstdWriter&&) noexcept = default;

Result<void> ZstdWriter::write(std::span<const std::byte> data) {
  DSF_CHECK(!impl_->finished, "ZstdWriter::write after finish");
  return impl_->run(data, ZSTD_e_continue);
}
Result<void> ZstdWriter::flush() { return impl_->run({}, ZSTD_e_flush); }
Result<void> ZstdWriter::finish() {
  impl_->finished = true;
  return impl_->run({}, ZSTD_e_end);
}

Result<ZstdPrefix> zstd_decompress_prefix(std::span<const std::byte> data, std::string_view subject, size_t max_bytes) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> ctx(ZSTD_createDCtx(), ZSTD_freeDCtx);
  ZstdPrefix out;
  std::string buffer(ZSTD_DStreamOutSize(), '\0');
  ZSTD_inBuffer in{data.data(), data.size(), 0};
  size_t left = 0;
  bool full = false;  // the last call filled its output: more may be waiting inside
  while (in.pos < in.size || full) {
    ZSTD_outBuffer chunk{buffer.data(), buffer.size(), 0};
    left = ZSTD_decompressStream(ctx.get(), &chunk, &in);
    if (ZSTD_isError(left) != 0)
      return fail(Code::kContent, std::string(subject), std::string("damaged zstd data: ") + ZSTD_getErrorName(left), {}, "zstd");
    full = chunk.pos == chunk.size;
    if (out.text.size() + chunk.pos > max_bytes)
      return fail(Code::kContent, std::string(subject), "expands beyond " + std::to_string(max_bytes) + " bytes", {}, "too_large");
    out.text.append(buffer.data(), chunk.pos);
  }
  out.complete = left == 0 && !data.empty();
  return out;
}

Result<std::string> zstd_decompress(std::span<const std::byte> data, std::string_view subject, size_t max_bytes) {
  DSF_TRY(ZstdPrefix all, zstd_decompress_prefix(data, subject, max_bytes));
  if (!all.complete) return fail(Code::kContent, std::string(subject), "zstd data ends in the middle of a frame", {}, "truncated");
  return std::move(all.text);
}

std::string zstd_compress(std::span<const std::byte> data, int level) {
  std::string out(ZSTD_compressBound(data.size()), '\0');
  const size_t n = ZSTD_compress(out.data(), out.size(), data.data(), data.size(), level);
  DSF_CHECK(ZSTD_isError(n) == 0, "zstd compression into a large enough buffer");
  out.resize(n);
  return out;
}

}  // namespace dsf::codec
