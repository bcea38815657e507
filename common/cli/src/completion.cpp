#include "app_impl.h"

namespace dsf::cli {
namespace {

std::vector<std::string> words(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* o : app.get_options()) {
    if (o->get_group().empty() && !o->get_lnames().empty()) continue;  // hidden
    for (const std::string& n : o->get_lnames()) out.push_back("--" + n);
    for (const std::string& n : o->get_snames()) out.push_back("-" + n);
  }
  return out;
}

std::string join(const std::vector<std::string>& v) {
  std::string out;
  for (const std::string& s : v) out += (out.empty() ? "" : " ") + s;
  return out;
}

std::string quoted(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

std::string bash(const CLI::App& root, const std::string& tool) {
  std::string fn = "_" + tool;
  for (char& c : fn) c = c == '-' ? '_' : c;
  std::string out = fn + "() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words=" + quoted(join(words(root)));
  std::string names;
  for (const CLI::App* sub : root.get_subcommands({})) names += (names.empty() ? "" : " ") + sub->get_name();
  out += "\n  [ \"$COMP_CWORD\" = 1 ] && words=\"$words " + names + "\"\n  case ${COMP_WORDS[1]} in\n";
  for (const CLI::App* sub : root.get_subcommands({})) out += "    " + sub->get_name() + ") words=" + quoted(join(words(*sub))) + " ;;\n";
  return out + "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n  [ \"${#COMPREPLY[@]}\" = 0 ] && COMPREPLY=($(compgen -f -- \"$cur\"))\n}\ncomplete -o filenames -F " + fn + " " + tool + "\n";
}

std::string fish_flags(const CLI::App& app, const std::string& tool, const std::string& condition) {
  std::string out;
  for (const CLI::Option* o : app.get_options()) {
    if (o->get_group().empty() || o->get_lnames().empty()) continue;
    out += "complete -c " + tool + condition + " -l " + o->get_lnames().front() + (o->get_items_expected_max() > 0 ? " -r" : "") + " -d " + quoted(o->get_description()) + "\n";
  }
  return out;
}

std::string fish(const CLI::App& root, const std::string& tool) {
  std::string out = fish_flags(root, tool, "");
  for (const CLI::App* sub : root.get_subcommands({})) {
    out += "complete -c " + tool + " -n __fish_use_subcommand -a " + sub->get_name() + " -d " + quoted(sub->get_description()) + "\n";
    out += fish_flags(*sub, tool, " -n '__fish_seen_subcommand_from " + sub->get_name() + "'");
  }
  return out;
}

}  // namespace

std::string completion(const CLI::App& root, const std::string& tool, const std::string& kind) {
  if (kind == "completion-bash") return bash(root, tool);
  // zsh runs bash completions through bashcompinit.
  if (kind == "completion-zsh") return "#compdef " + tool + "\nautoload -U +X bashcompinit && bashcompinit\n" + bash(root, tool);
  if (kind == "completion-fish") return fish(root, tool);
  return "";
}

}  // namespace dsf::cli
