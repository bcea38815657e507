// self.decode: this binary's own decoders against digests published or computed elsewhere, before anything is served
// with them: a miscompiled decoder answers fluent nonsense. Source: exl3.md 4, engram.md 5.1.
#include <algorithm>
#include <array>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/engram/rows.h"
#include "dsf/exl3/decode.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {
namespace {

struct Golden {
  exl3::Codebook codebook;
  const char* sha256;  // of the 65,536 values as little-endian fp16
};
// Computed from the definitions in exl3.md 4 by another program; their CRC-32 are the published 4c83d524, d2d13c52,
// 2bdf05c5.
constexpr std::array<Golden, 3> kCodebooks{
    {{exl3::Codebook::k3Inst, "ad88de2dcff5bb05fff2faec37cceceb43aa1c2e8203f9d81a6fbd6dd3393eea"},
     {exl3::Codebook::kMcg, "95383563929baa9d1ae5de0be22490284382673620bdd85929feea7bdbef04a9"},
     {exl3::Codebook::kMul1, "bc48d02cb1c14939dc47b90f870dd689d63e3b1ab69a157e65538db68677a6c8"}}};
// Of the table of every scale byte and every weight byte, published in engram.md 5.1.
constexpr const char* kEngramTable = "ac4091794caec6f553a226c3857da2756d0b29c4c7b24e02ce61274a3df93185";

std::string codebook_digest(exl3::Codebook codebook) {
  std::vector<std::byte> bytes(size_t{65536} * 2);
  for (uint32_t s = 0; s < 65536; ++s)
    store_le(bytes.data() + size_t{s} * 2, exl3::codebook_value(codebook, static_cast<uint16_t>(s)));
  return codec::sha256(bytes).hex();
}

std::string engram_digest() {
  codec::Sha256 hash;
  std::array<std::byte, 264> record{};
  std::array<uint16_t, 256> row{};
  for (size_t b = 0; b < 256; ++b) record[b] = static_cast<std::byte>(b);
  for (size_t s = 0; s < 256; ++s) {
    std::fill(record.begin() + 256, record.end(), static_cast<std::byte>(s));
    engram::dequantize_row_bf16(record, row);
    hash.update(std::as_bytes(std::span(row)));
  }
  return hash.finish().hex();
}

}  // namespace

void check_self(Context&, Outcome& out) {
  const char* fix = "do not serve with this build; report it with dsf-preflight --version";
  for (const Golden& g : kCodebooks)
    if (codebook_digest(g.codebook) != g.sha256)
      out.add({Status::kFail, "decoder",
               "EXL3 codebook " + std::string(exl3::codebook_name(g.codebook)) +
                   ": decodes to other values than the format's",
               fix});
  if (engram_digest() != kEngramTable)
    out.add({Status::kFail, "decoder", "Engram rows: dequantise to other values than the format's", fix});
  out.summary = "three codebooks and the Engram table decode as published";
}

}  // namespace dsf::preflight
