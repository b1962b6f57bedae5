#include "brigade/launch/back_end.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::launch {
namespace {

constexpr absl::string_view kExported[] = {"NCCL",   "PYTHON", "MV2",  "UCX",
                                           "MLFLOW", "TORCH",  "OMP_", "BRIGADE_"};
// Where nobody can look for a free one on the host of rank 0.
constexpr int kUsualPort = 29500;

std::string ThisProgram() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

std::string CurrentFolder() {
  std::error_code ignored;
  return std::filesystem::current_path(ignored).string();
}

std::string Joined(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const std::string& word) {
    absl::StrAppend(out, ShellQuoted(word));
  });
}

void Append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

int MasterPort(const Options& options) {
  return options.master_port == 0 ? kUsualPort : options.master_port;
}

std::vector<std::string> PdshCommand(const Options& options, const std::vector<Host>& hosts,
                                     const Variables& exported) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  const std::string folder = CurrentFolder();
  const std::string program =
      options.remote_program.empty() ? ThisProgram() : options.remote_program;
  std::vector<std::string> agent = {
      absl::StrCat("--hosts=", ToText(hosts)),
      absl::StrCat("--master_addr=",
                   options.master_addr.empty() ? hosts[0].name : options.master_addr),
      absl::StrCat("--master_port=", MasterPort(options)),
      absl::StrCat("--grace=", absl::FormatDuration(options.grace))};
  if (!options.log_directory.empty()) {
    agent.push_back(absl::StrCat("--enable_each_rank_log=", options.log_directory));
  }
  if (options.bind_cores) agent.push_back("--bind_cores_to_rank");
  agent.push_back("--no_python");
  // pdsh puts a host's number in the place of %n, and a percent sign in that of %%.
  std::string remote = absl::StrCat("cd ", ShellQuoted(folder), " &&");
  for (const auto& [name, value] : exported) {
    absl::StrAppend(&remote, " ", name, "=", ShellQuoted(value));
  }
  absl::StrAppend(&remote, " exec ", ShellQuoted(program), " --no_ssh");
  const std::string rest = absl::StrCat(Joined(agent), " -- ", Joined(ProgramOf(options)));
  const auto escaped = [](const std::string& text) {
    return absl::StrReplaceAll(text, {{"%", "%%"}});
  };
  remote = absl::StrCat(escaped(remote), " --node_rank=%n ", escaped(rest));
  std::vector<std::string> words = {"pdsh", "-S", "-f", "1024", "-w", absl::StrJoin(names, ",")};
  Append(words, options.launcher_args);
  words.push_back(remote);
  return words;
}

// Values stay in the environment, where nobody else reads them.
std::vector<std::string> MpirunCommand(const Options& options, const std::vector<Host>& hosts,
                                       const Variables& exported) {
  std::vector<std::string> slots;
  for (const Host& host : hosts) slots.push_back(absl::StrCat(host.name, ":", host.slots.size()));
  std::vector<std::string> words = {"mpirun", "-n", absl::StrCat(CountRanks(hosts)), "--host",
                                    absl::StrJoin(slots, ",")};
  Append(words, options.launcher_args);
  for (const auto& [name, value] : exported) {
    words.push_back("-x");
    words.push_back(name);
  }
  Append(words, ProgramOf(options));
  return words;
}

std::vector<std::string> SrunCommand(const Options& options, const std::vector<Host>& hosts) {
  std::vector<std::string> words = {"srun", "-n", absl::StrCat(CountRanks(hosts)),
                                    absl::StrCat("--nodes=", hosts.size())};
  if (!options.hostfile.empty() || !options.hosts.empty()) {
    std::vector<std::string> names;
    for (const Host& host : hosts) names.push_back(host.name);
    words.push_back(absl::StrCat("--nodelist=", absl::StrJoin(names, ",")));
  }
  words.push_back(absl::StrCat("--ntasks-per-node=", hosts[0].slots.size()));
  Append(words, {"--kill-on-bad-exit=1", "--export=ALL"});
  Append(words, options.launcher_args);
  Append(words, ProgramOf(options));
  return words;
}

}  // namespace

std::string ShellQuoted(absl::string_view word) {
  const auto is_plain = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("%+,-./:=@_").find(c) != absl::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

absl::StatusOr<Variables> VariablesFromText(absl::string_view text, absl::string_view file) {
  Variables variables;
  int number = 0;
  for (const absl::string_view each : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(each);
    if (line.empty() || line.front() == '#') continue;
    const size_t equals = line.find('=');
    const auto is_in_name = [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
    };
    const absl::string_view name = line.substr(0, equals);
    if (equals == absl::string_view::npos || name.empty() ||
        absl::ascii_isdigit(static_cast<unsigned char>(name.front())) ||
        !std::all_of(name.begin(), name.end(), is_in_name)) {
      return absl::InvalidArgumentError(absl::StrCat(device::Printable(file, 300), ", line ",
                                                     number, ": ", device::Quoted(line),
                                                     " is not NAME=VALUE"));
    }
    variables[std::string(name)] = std::string(line.substr(equals + 1));
  }
  return variables;
}

absl::StatusOr<Variables> ExportedVariables() {
  Variables exported;
  for (char** each = environ; *each != nullptr; ++each) {
    const absl::string_view text = *each;
    const absl::string_view name = text.substr(0, text.find('='));
    const auto begins = [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); };
    if (!std::any_of(std::begin(kExported), std::end(kExported), begins) ||
        std::count(std::begin(kSecretVariables), std::end(kSecretVariables), name) > 0 ||
        name.size() == text.size()) {
      continue;
    }
    exported[std::string(name)] = std::string(text.substr(name.size() + 1));
  }
  const char* const file = std::getenv("DS_ENV_FILE");
  const std::string name = file == nullptr || *file == '\0' ? ".deepspeed_env" : file;
  const char* const home = std::getenv("HOME");
  std::vector<std::string> paths = {name};
  if (name.front() != '/' && home != nullptr) {
    paths.insert(paths.begin(), absl::StrCat(home, "/", name));
  }
  for (const std::string& path : paths) {
    if (!std::filesystem::exists(path)) continue;
    BRIGADE_ASSIGN_OR_RETURN(const std::string text, device::ReadFile(path, int64_t{1} << 20));
    BRIGADE_ASSIGN_OR_RETURN(const Variables more, VariablesFromText(text, path));
    for (const auto& [key, value] : more) {
      if (std::count(std::begin(kSecretVariables), std::end(kSecretVariables), key) == 0) {
        exported[key] = value;
      } else {
        setenv(key.c_str(), value.c_str(), 1);
      }
    }
  }
  return exported;
}

std::vector<std::string> ProgramOf(const Options& options) {
  std::vector<std::string> words;
  const bool is_script = !options.no_python && absl::EndsWith(options.program[0], ".py");
  if (options.module || is_script) words = {"python3", "-u"};
  if (options.module) words.push_back("-m");
  Append(words, options.program);
  return words;
}

std::vector<std::string> AgentCommand(const Options& options, const std::string& host,
                                      const std::string& name) {
  const std::string here = ThisProgram(), agent = absl::StrCat("--agent=", name);
  if (options.launcher != BackEnd::kSsh) return {here, agent};
  std::vector<std::string> words = {options.ssh};
  Append(words, options.launcher_args);
  if (std::filesystem::path(options.ssh).filename() == "ssh") {
    words.insert(words.end(), std::begin(kNoPassword), std::end(kNoPassword));
  }
  words.push_back(host);
  words.push_back(absl::StrCat(
      "exec ", ShellQuoted(options.remote_program.empty() ? here : options.remote_program), " ",
      ShellQuoted(agent), " --agent_patience=", absl::FormatDuration(options.host_timeout)));
  return words;
}

std::string ToText(const std::vector<Host>& hosts) {
  return absl::StrJoin(hosts, "@", [](std::string* out, const Host& host) {
    absl::StrAppend(out, host.name, ":", absl::StrJoin(host.slots, ","));
  });
}

absl::StatusOr<std::vector<std::string>> ForeignCommand(const Options& options,
                                                        const std::vector<Host>& hosts,
                                                        const Variables& exported) {
  if (*options.launcher == BackEnd::kPdsh) return PdshCommand(options, hosts, exported);
  const char* const name = NameOf(*options.launcher);
  for (const Host& host : hosts) {
    std::vector<int> first(host.slots.size());
    std::iota(first.begin(), first.end(), 0);
    if (host.slots != first) {
      return absl::InvalidArgumentError(
          absl::StrCat("--launcher=", name, " starts ranks on the first slots of a host, and ",
                       host.name, " is to have others"));
    }
    if (*options.launcher == BackEnd::kSlurm && host.slots != hosts[0].slots) {
      return absl::InvalidArgumentError(
          absl::StrCat("--launcher=slurm starts as many ranks on each host; ", host.name, " has ",
                       host.slots.size(), ", ", hosts[0].name, " ", hosts[0].slots.size()));
    }
  }
  return *options.launcher == BackEnd::kSlurm ? SrunCommand(options, hosts)
                                              : MpirunCommand(options, hosts, exported);
}

Variables ForeignVariables(const Options& options, const std::vector<Host>& hosts) {
  Variables variables = {{"MASTER_PORT", absl::StrCat(MasterPort(options))}};
  if (!options.master_addr.empty()) {
    variables["MASTER_ADDR"] = options.master_addr;
  } else if (*options.launcher != BackEnd::kSlurm) {
    // Slurm's ranks look for the first of their nodes.
    variables["MASTER_ADDR"] = hosts[0].name;
  }
  return variables;
}

}  // namespace brigade::launch
