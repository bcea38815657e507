#include "dsf/cli/app.h"

#include <algorithm>
#include <cctype>
#include <iostream>

#include "app_impl.h"
#include "dsf/base/numeric.h"
#include "dsf/cli/log.h"
#include "dsf/cli/version.h"

namespace dsf::cli {

Command::Command(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Command::~Command() = default;

CLI::Option* Command::Impl::dress(CLI::Option* option, bool environment) {
  option->group(group);
  const auto longs = option->get_lnames();
  if (environment && !longs.empty()) {
    std::string name = "DSF_" + longs.front();
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
    option->envname(name);
  }
  return option;
}

Command& Command::flag(const std::string& names, bool& value, const std::string& help) {
  impl_->dress(impl_->app->add_flag(names, value, help), false);
  return *this;
}
Command& Command::option(const std::string& names, std::string& value, const std::string& help,
                         const std::string& placeholder) {
  impl_->dress(impl_->app->add_option(names, value, help)->type_name(placeholder), true);
  return *this;
}
Command& Command::option(const std::string& names, int64_t& value, const std::string& help, int64_t min, int64_t max) {
  auto* o = impl_->dress(impl_->app->add_option(names, value, help)->type_name("N"), true);
  if (min != INT64_MIN || max != INT64_MAX) {
    o->check([min, max](const std::string& text) -> std::string {
      const auto v = parse_i64(text);
      if (v && *v >= min && *v <= max) return "";
      return "must be a whole number from " + std::to_string(min) +
             (max == INT64_MAX ? " up" : " to " + std::to_string(max)) + ", got '" + text + "'";
    });
  }
  return *this;
}
Command& Command::option(const std::string& names, double& value, const std::string& help, double min, double max) {
  impl_->dress(impl_->app->add_option(names, value, help)->type_name("X"), true)
      ->check([min, max](const std::string& text) -> std::string {
        const auto v = parse_double(text);
        return v && *v >= min && *v <= max ? ""
                                           : "must be a number from " + std::to_string(min) + " to " +
                                                 std::to_string(max) + ", got '" + text + "'";
      });
  return *this;
}
Command& Command::list(const std::string& names, std::vector<std::string>& values, const std::string& help,
                       const std::string& placeholder) {
  // One value per flag: without this CLI11 would also swallow the positionals that follow.
  impl_->dress(impl_->app->add_option(names, values, help)->type_name(placeholder), false)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  return *this;
}
Command& Command::choice(const std::string& names, std::string& value, std::vector<std::string> allowed,
                         const std::string& help) {
  impl_->dress(impl_->app->add_option(names, value, help), true)->check(CLI::IsMember(std::move(allowed)));
  return *this;
}

namespace {
// An option whose text a parser turns into a number; the parser returns nullopt for what it does not take.
template <class T, class Parse>
CLI::Option* parsed_option(CLI::App* app, const std::string& names, T& value, const std::string& help, const char* type,
                           const char* example, Parse parse) {
  return app
      ->add_option_function<std::string>(
          names, [&value, parse](const std::string& text) { value = *parse(text); }, help)
      ->type_name(type)
      ->check([parse, example](const std::string& text) -> std::string {
        return parse(text) ? "" : "'" + text + "' is not understood, write for example " + example;
      });
}
}  // namespace

Command& Command::bytes(const std::string& names, uint64_t& value, const std::string& help) {
  impl_->dress(parsed_option(impl_->app, names, value, help, "SIZE", "64MiB", parse_bytes), true);
  return *this;
}
Command& Command::duration(const std::string& names, int64_t& microseconds, const std::string& help) {
  impl_->dress(parsed_option(impl_->app, names, microseconds, help, "TIME", "250ms or 10s", parse_duration_us), true);
  return *this;
}
Command& Command::positional(const std::string& name, std::string& value, const std::string& help, bool required) {
  impl_->app->add_option(name, value, help)->required(required)->type_name("");
  return *this;
}
Command& Command::positionals(const std::string& name, std::vector<std::string>& values, const std::string& help,
                              size_t at_least) {
  auto* o = impl_->app->add_option(name, values, help)->type_name("");
  o->expected(static_cast<int>(at_least), CLI::detail::expected_max_vector_size)->required(at_least > 0);
  return *this;
}
Command& Command::group(const std::string& title) {
  impl_->group = title;
  return *this;
}

Command& Command::rare_group(const std::string& title) { return group(kRareMark + title); }

Command& Command::common(CommonFlags& f, unsigned mask) {
  group("Common");
  if ((mask & kJson) != 0) flag("--json", f.json, "machine-readable result on stdout");
  if ((mask & kPin) != 0) option("--pin", f.pin, "manifest that says what is expected", "FILE");
  if ((mask & kOutput) != 0) option("-o,--output", f.output, "where the result goes; - is stdout", "PATH");
  if ((mask & kJobs) != 0) {
    impl_->dress(impl_->app->add_option("-j,--jobs", f.jobs, "parallel work; 0 is one per core")
                     ->type_name("N")
                     ->check(CLI::Range(0, 4096)),
                 true);
  }
  if ((mask & kDryRun) != 0) flag("--dry-run", f.dry_run, "say what would be done, write nothing");
  flag("--quiet", f.quiet, "errors only");
  impl_->app->add_flag("-v,--verbose", f.verbose, "more log; twice for debug")->group("Common");
  return *this;
}

Command& Command::subcommand(const std::string& name, const std::string& summary) {
  auto impl = std::make_unique<Impl>();
  impl->app = impl_->app->add_subcommand(name, summary);
  impl_->children.push_back(std::make_unique<Command>(std::move(impl)));
  return *impl_->children.back();
}
Command& Command::require_subcommand() {
  impl_->app->require_subcommand(1);
  return *this;
}
bool Command::chosen() const { return impl_->app->parsed(); }
bool Command::given(const std::string& name) const {
  const CLI::Option* o = impl_->app->get_option_no_throw(name);
  return o != nullptr && !o->empty();
}

namespace {
std::unique_ptr<Command::Impl> make_root(const ToolInfo& info) {
  auto impl = std::make_unique<Command::Impl>();
  impl->owned = std::make_unique<CLI::App>(info.summary, info.name);
  impl->app = impl->owned.get();
  return impl;
}

std::string footer(const ToolInfo& info) {
  std::string out;
  if (!info.examples.empty()) out += "Examples:\n";
  for (const Example& e : info.examples) out += "  " + e.command + "\n      " + e.what + "\n";
  return out +
         "\nExit codes: 0 yes, 1 no, 2 usage, 3 remote failed, 4 refused, 5 missing, 6 this machine,\n"
         "  7 busy, 8 content wrong, 9 offline, 10 warnings, 70 bug. Options may come from DSF_* variables.";
}
}  // namespace

// What else follows a colon is a check, whose error says it well enough.
std::string placeholder(std::string type) {
  const size_t colon = type.find(':');
  if (colon == std::string::npos) return type;
  if (type.size() < colon + 3 || type[colon + 1] != '{') return type.substr(0, colon);
  type = type.substr(colon + 2, type.size() - colon - 3);
  std::replace(type.begin(), type.end(), ',', '|');
  return type;
}

namespace {
// One line an option: the footer says that every option has its DSF_* variable, the manual names it.
class Formatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string out;
    if (option->get_items_expected_max() > 0 && !option->get_type_name().empty())
      out = " " + placeholder(option->get_type_name());
    return option->get_required() ? out + " REQUIRED" : out;
  }
  std::string make_group(std::string group, bool positional, std::vector<const CLI::Option*> options) const override {
    return CLI::Formatter::make_group(shown_title(group), positional, std::move(options));
  }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
    return make_description(app) + make_usage(app, std::move(name)) + make_positionals(app) +
           groups_of(app, mode == CLI::AppFormatMode::All) + make_subcommands(app, mode) + "\n" + make_footer(app);
  }

 private:
  // Without the base class's empty lines between groups; rare ones when everything is asked for.
  std::string groups_of(const CLI::App* app, bool all) const {
    std::string out;
    bool hides = false;
    for (const std::string& group : app->get_groups()) {
      const auto of_group = [&](const CLI::Option* o) { return o->get_group() == group && o->nonpositional(); };
      std::vector<const CLI::Option*> options = app->get_options(of_group);
      const bool hidden = group.starts_with(kRareMark) && !all;
      hides = hides || hidden;
      if (group.empty() || options.empty() || hidden) continue;
      std::string text = make_group(group, false, std::move(options));
      text.erase(0, text.find_first_not_of('\n'));
      while (text.ends_with("\n\n")) text.pop_back();
      out += text;
    }
    return hides ? "\n" + out + "More, for rarer needs: --help-all\n" : "\n" + out;
  }
};
}  // namespace

App::App(ToolInfo info) : Command(make_root(info)), info_(std::move(info)) {
  impl_->app->formatter(std::make_shared<Formatter>());
  impl_->app->footer(footer(info_));
  impl_->app->set_help_all_flag("--help-all", "help with every option");
  impl_->app->set_version_flag("--version", version_line(info_.name), "version, commit, compilers");
  impl_->app->get_formatter()->column_width(36);
}

namespace {
// The chosen subcommand of the chosen subcommand.
const CLI::App* innermost(const CLI::App* app) {
  for (auto chosen = app->get_subcommands(); !chosen.empty(); chosen = app->get_subcommands()) app = chosen.front();
  return app;
}
}  // namespace

Result<std::optional<int>> App::parse(Args args) {
  if (args.argc == 3 && std::string_view(args.argv[1]) == "--generate") {
    const std::string_view kind = args.argv[2];
    const std::string script =
        kind == "manual-options" ? manual_options(*impl_->app) : completion(*impl_->app, info_.name, args.argv[2]);
    if (script.empty())
      return fail(Code::kUsage, "--generate", "unknown kind " + std::string(kind),
                  "use completion-bash, completion-zsh, completion-fish or manual-options");
    std::cout << script;
    return std::optional<int>(0);
  }
  try {
    impl_->app->parse(args.argc, args.argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << innermost(impl_->app)->help();
    return std::optional<int>(0);
  } catch (const CLI::CallForAllHelp&) {
    std::cout << innermost(impl_->app)->help("", CLI::AppFormatMode::All);
    return std::optional<int>(0);
  } catch (const CLI::CallForVersion&) {
    std::cout << version_line(info_.name) << "\n";
    return std::optional<int>(0);
  } catch (const CLI::ParseError& e) {
    return fail(Code::kUsage, "", e.what(), "see " + info_.name + " --help", "usage");
  }
  return std::optional<int>();
}

}  // namespace dsf::cli
