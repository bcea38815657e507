#include <sys/random.h>

#include <array>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/tokenizer/output_parser.h"

namespace dsf::tokenizer {

std::string new_call_id() {
  std::array<std::byte, 12> bytes{};
  // At most 256 bytes come whole, without interruption.
  DSF_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "the system's random source failed");
  return "call_" + to_hex(bytes);
}

}  // namespace dsf::tokenizer
