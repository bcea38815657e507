#pragma once
// Stamps as verify uses them: level quick reads them, every digest that was compared writes one. Source: hub.md 5.5.
#include <string>
#include <vector>

#include "dsf/manifest/stamps.h"
#include "tools/verify/report.h"

namespace dsf::verify {

class Stamping {
 public:
  // Reads the stamps of the folder; malformed ones are none. Level full and hub look at none.
  Stamping(const Plan& plan, std::string evidence);
  // A stamp says that this file holds its expected digest and has not been touched since.
  bool holds(const FileReport& file) const;
  // Takes over what this run has hashed: right files get a stamp, others lose theirs. A folder that cannot be written
  // is said once and changes nothing else.
  void update(const std::vector<FileReport>& files);

 private:
  const Plan& plan_;
  std::string evidence_;
  manifest::Stamps stamps_;
  bool network_;
};

}  // namespace dsf::verify
