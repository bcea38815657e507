#pragma once
// An unsigned in-toto statement of a verified folder, in the form of the model signing format: signing stays with its
// own tool. Source: hub.md 4.5.
#include <string>

#include "tools/verify/report.h"

namespace dsf::verify {

// name: of the subject. Files in byte order of their names; the subject's digest is SHA-256 over their raw digests in
// that order.
std::string in_toto_statement(const Report& report, const std::string& name);

}  // namespace dsf::verify
