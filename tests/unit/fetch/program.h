#pragma once
// dsf-fetch as a process: started on the fixture's Hub, killed, or run inside a script with mounts of its own.
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "fixture.h"

namespace dsf::test {

struct Finished {
  int status = 0;  // of waitpid
  std::string out, err;
  int code() const;  // exit code; -signal when killed
};

class Program {
 public:
  explicit Program(const FetchFixture& f) : f_(f) {}
  // More arguments, more "NAME=value" environment (later ones win over HF_ENDPOINT and HOME).
  std::vector<std::string> args, env;
  uint64_t limit_bytes = 0;  // largest file it may write (RLIMIT_FSIZE); 0: no limit
  // get org/repo into the fixture's out folder, with small pieces.
  pid_t start() const;
  Finished run() const { return wait(start()); }
  Finished wait(pid_t pid) const;

 private:
  const FetchFixture& f_;
  mutable std::map<pid_t, std::string> outputs_;
};

// sh -c script with $FETCH (the program), $OUT and HF_ENDPOINT set, in a mount namespace of its own. Needs may_mount().
Finished in_mount_namespace(const FetchFixture& f, const std::string& script);
bool may_mount();

}  // namespace dsf::test
