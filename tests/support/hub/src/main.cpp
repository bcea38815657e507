// dsf-hub: the loopback Hub as a developer tool.
#include <poll.h>

#include <cstdio>

#include "dsf/cli/app.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "dsf/io/file.h"
#include "dsf/loopback_hub/loopback_hub.h"

namespace {

using namespace dsf;

Result<int> serve(const loopback_hub::Options& options, const std::string& port_file) {
  cli::ignore_sigpipe();
  cli::install_stop_signals();
  DSF_TRY(const auto hub, loopback_hub::LoopbackHub::start(options));
  const std::string endpoint = hub->endpoint();
  std::printf("%s\n", endpoint.c_str());
  std::fflush(stdout);
  if (!port_file.empty()) DSF_OK(io::write_file_atomic(port_file, endpoint.substr(endpoint.rfind(':') + 1) + "\n"));
  cli::log(cli::Level::kInfo, "serving",
           {{"endpoint", endpoint}, {"storage", hub->cdn_origin()}, {"root", options.root.string()}});
  pollfd wait{cli::stop_fd(), POLLIN, 0};
  while (!cli::stop_requested()) poll(&wait, 1, 1000);
  hub->stop();
  return 0;  // asked to end: an orderly end is a success for make and test scripts
}

Result<int> run(cli::Args args) {
  cli::App app({"dsf-hub",
                "A Hub on the loopback interface, made from folders, for tests and demonstrations.",
                {{"dsf-hub serve --root ./hub --port 8080", "serve ./hub/<org>/<name>/ at http://127.0.0.1:8080"},
                 {"dsf-hub serve --root ./hub --port-file port.txt", "any free port, written to port.txt"},
                 {"HF_ENDPOINT=http://127.0.0.1:8080 dsf-fetch ls org/name", "ask it"}}});
  loopback_hub::Options options;
  std::string root, port_file;
  int64_t port = 0, page = 1000, lifetime = 3600;
  cli::Command& command = app.subcommand("serve", "Serve the folders below --root until SIGINT or SIGTERM");
  command.option("--root", root, "folder of <org>/<name> folders", "DIR");
  command.option("--port", port, "port of the Hub; 0 takes any free one", 0, 65535);
  command.option("--port-file", port_file, "write the port here once it accepts connections", "FILE");
  command.option("--page-size", page, "entries of a listing page", 1, 100000);
  command.option("--url-lifetime", lifetime, "seconds for which a storage URL is valid", 1, 86400);
  command.flag("--resolve-cache", options.resolve_cache,
               "answer git files with a relative redirect first, as the public Hub does");
  app.require_subcommand();
  DSF_TRY(const auto done, app.parse(args));
  if (done) return *done;
  if (root.empty()) return fail(Code::kUsage, "--root", "is missing", "name the folder that holds <org>/<name>");
  options.root = root;
  options.port = static_cast<uint16_t>(port);
  options.page_size = static_cast<size_t>(page);
  options.url_lifetime_s = lifetime;
  return serve(options, port_file);
}

}  // namespace

int main(int argc, char** argv) { return dsf::cli::run_main(argc, argv, run); }
