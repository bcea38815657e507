// The option section of a manual, from the same table as --help: definition lists of pandoc's Markdown.
#include "app_impl.h"

namespace dsf::cli {
namespace {

std::string text_of(std::string text) {
  for (size_t at = 0; (at = text.find_first_of("*_<>", at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string names_of(const CLI::Option& o) {
  std::string out;
  for (const std::string& n : o.get_snames()) out += (out.empty() ? "**-" : ", **-") + n + "**";
  for (const std::string& n : o.get_lnames()) out += (out.empty() ? "**--" : ", **--") + n + "**";
  if (o.get_items_expected_max() > 0) out += " *" + text_of(placeholder(o.get_type_name())) + "*";
  return out;
}

std::string positionals_of(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* o : app.get_options()) {
    if (!o->get_positional()) continue;
    const std::string name = o->get_name(true) + (o->get_items_expected_max() > 1 ? "..." : "");
    out += o->get_required() ? " *" + name + "*" : " [*" + name + "*]";
  }
  return out;
}

std::string entry(const std::string& term, const std::string& text) { return term + "\n:   " + text + "\n\n"; }

// Positionals first, then the flags group by group, in the order of the table.
std::string options_of(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* o : app.get_options())
    if (o->get_positional()) out += entry("*" + o->get_name(true) + "*", text_of(o->get_description()));
  std::vector<std::string> groups;
  for (const CLI::Option* o : app.get_options()) {
    const bool known = std::find(groups.begin(), groups.end(), o->get_group()) != groups.end();
    if (!known && o->nonpositional() && !o->get_group().empty()) groups.push_back(o->get_group());
  }
  for (const std::string& group : groups) {
    std::string flags;
    for (const CLI::Option* o :
         app.get_options([&](const CLI::Option* x) { return x->nonpositional() && x->get_group() == group; })) {
      if (o == app.get_help_ptr() || o == app.get_help_all_ptr() || o == app.get_version_ptr()) continue;
      const std::string variable = o->get_envname().empty() ? "" : " (`" + o->get_envname() + "`)";
      flags += entry(names_of(*o), text_of(o->get_description()) + variable);
    }
    if (!flags.empty()) out += "*" + shown_title(group) + "*\n\n" + flags;
  }
  return out;
}

void add_command(const CLI::App& app, const std::string& prefix, std::string& out) {
  const auto children = app.get_subcommands({});
  const std::string name = prefix.empty() ? app.get_name() : prefix + " " + app.get_name();
  if (children.empty() || !prefix.empty()) {
    out += "## " + name + positionals_of(app) + "\n\n" + text_of(app.get_description()) + ".\n\n";
    if (children.empty()) out += options_of(app);
  }
  for (const CLI::App* child : children) add_command(*child, name, out);
}

}  // namespace

std::string manual_options(const CLI::App& root) {
  std::string out;
  add_command(root, "", out);
  return out;
}

}  // namespace dsf::cli
