#include "program.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dsf/io/file.h"

namespace dsf::test {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& t : texts) out.push_back(const_cast<char*>(t.c_str()));
  out.push_back(nullptr);
  return out;
}

// stdout and stderr go to files.
pid_t spawn(const std::string& program, const std::vector<std::string>& args, const std::vector<std::string>& env,
            const std::string& outputs, uint64_t limit_bytes = 0) {
  const std::vector<char*> argv = pointers(args), envp = pointers(env);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const std::string out = outputs + ".out", err = outputs + ".err";
  dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), 1);
  dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), 2);
  if (limit_bytes > 0) {
    const rlimit limit{limit_bytes, limit_bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  execve(program.c_str(), argv.data(), envp.data());
  _exit(127);
}

Finished finish(pid_t pid, const std::string& outputs) {
  Finished f;
  waitpid(pid, &f.status, 0);
  if (const auto text = io::read_text(outputs + ".out")) f.out = *text;
  if (const auto text = io::read_text(outputs + ".err")) f.err = *text;
  return f;
}

}  // namespace

int Finished::code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

pid_t Program::start() const {
  std::vector<std::string> argv = {"dsf-fetch", "get", "org/repo", "--local-dir", (f_.dir / "out").string(),
                                   "-j",        "3",   "--piece",  "64KiB",       "--no-token",
                                   "--reserve", "0"};
  argv.insert(argv.end(), args.begin(), args.end());
  std::vector<std::string> envp = env;  // the first of two equal names is what getenv() finds
  envp.push_back("HF_ENDPOINT=" + f_.hub->endpoint());
  envp.push_back("HOME=/nonexistent");
  const std::string outputs = (f_.dir / ("output" + std::to_string(outputs_.size()))).string();
  const pid_t pid = spawn(DSF_FETCH_PROGRAM, argv, envp, outputs, limit_bytes);
  outputs_[pid] = outputs;
  return pid;
}

Finished Program::wait(pid_t pid) const { return finish(pid, outputs_.at(pid)); }

Finished in_mount_namespace(const FetchFixture& f, const std::string& script) {
  std::vector<std::string> argv = {"unshare", "-m"};
  if (geteuid() != 0) argv.emplace_back("-r");
  argv.insert(argv.end(), {"sh", "-ec", script});
  const std::vector<std::string> env = {"FETCH=" DSF_FETCH_PROGRAM, "OUT=" + (f.dir / "out").string(),
                                        "HF_ENDPOINT=" + f.hub->endpoint(), "HOME=/nonexistent",
                                        "PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  const std::string outputs = (f.dir / "script").string();
  return finish(spawn("/usr/bin/unshare", argv, env, outputs), outputs);
}

bool may_mount() {
  const std::string user = geteuid() == 0 ? "" : "-r ";
  const std::string command = "unshare -m " + user + "sh -c 'mount -t tmpfs none /mnt' >/dev/null 2>&1";
  return std::system(command.c_str()) == 0;  // NOLINT(concurrency-mt-unsafe,cert-env33-c): a fixed command
}

}  // namespace dsf::test
