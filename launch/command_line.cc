#include "brigade/launch/command_line.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "brigade/device/edit_distance.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::launch {
namespace {

using ::brigade::device::EditDistance;
using ::brigade::device::Quoted;

constexpr const char* kBackEnds[] = {"local", "ssh", "pdsh", "openmpi", "slurm"};

template <typename... Words>
absl::Status Invalid(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(words...));
}

using Set = std::function<absl::Status(absl::string_view, Options&)>;

struct Flag {
  // Several for one that DeepSpeed and torchrun call by two names.
  std::vector<const char*> names;
  // "" of a flag without one.
  const char* value;
  const char* help;
  Set set;
};

Set Text(std::string Options::*member) {
  return [member](absl::string_view value, Options& options) {
    if (value.empty()) return Invalid("it is empty");
    options.*member = std::string(value);
    return absl::OkStatus();
  };
}

Set True(bool Options::*member) {
  return [member](absl::string_view, Options& options) {
    options.*member = true;
    return absl::OkStatus();
  };
}

absl::StatusOr<int> NumberOf(absl::string_view value, int least, int most) {
  int number = 0;
  if (absl::SimpleAtoi(value, &number) && number >= least && number <= most) return number;
  return most == std::numeric_limits<int>::max()
             ? Invalid("it must be a whole number from ", least, " on")
             : Invalid("it must be a whole number from ", least, " to ", most);
}

Set Number(int Options::*member, int least, int most = std::numeric_limits<int>::max()) {
  return [=](absl::string_view value, Options& options) {
    BRIGADE_ASSIGN_OR_RETURN(options.*member, NumberOf(value, least, most));
    return absl::OkStatus();
  };
}

// "30", of seconds, or "1m30s".
Set Time(absl::Duration Options::*member, absl::Duration least) {
  return [=](absl::string_view value, Options& options) {
    absl::Duration time;
    double seconds = 0;
    if (absl::SimpleAtod(value, &seconds)) {
      time = absl::Seconds(seconds);
    } else if (!absl::ParseDuration(value, &time)) {
      return Invalid("it must be a time as 30 (seconds), 90s or 5m");
    }
    if (!(time >= least) || time > absl::Hours(24 * 7)) {
      return Invalid("it must be from ", absl::FormatDuration(least), " to a week");
    }
    options.*member = time;
    return absl::OkStatus();
  };
}

absl::Status SetNodes(absl::string_view value, Options& options) {
  const std::vector<absl::string_view> ends = absl::StrSplit(value, ':');
  const auto least = NumberOf(ends[0], 1, kMostRanks), most = NumberOf(ends.back(), 1, kMostRanks);
  if (ends.size() > 2 || !least.ok() || !most.ok() || *least > *most) {
    return Invalid("it must be a number of hosts, or MIN:MAX");
  }
  options.min_nodes = *least, options.max_nodes = *most;
  return absl::OkStatus();
}

absl::Status SetRanksPerNode(absl::string_view value, Options& options) {
  if (value != "gpu" && value != "cpu" && value != "auto" && !NumberOf(value, 1, kMostSlots).ok()) {
    return Invalid("it must be a number from 1 to ", kMostSlots, ", gpu, cpu or auto");
  }
  options.ranks_per_node = std::string(value);
  return absl::OkStatus();
}

absl::Status SetLauncher(absl::string_view value, Options& options) {
  options.launcher.reset();
  for (size_t i = 0; i < std::size(kBackEnds); ++i) {
    if (value == kBackEnds[i]) options.launcher = static_cast<BackEnd>(i);
  }
  if (options.launcher.has_value()) return absl::OkStatus();
  return Invalid("it must be ", absl::StrJoin(kBackEnds, ", "));
}

// As a shell has them, with quotation marks of both kinds and "\\".
absl::StatusOr<std::vector<std::string>> WordsOf(absl::string_view text) {
  std::vector<std::string> words;
  bool is_in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t')) {
      is_in_word = false;
      continue;
    }
    if (!std::exchange(is_in_word, true)) words.emplace_back();
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return Invalid("a quotation mark has no other one");
  return words;
}

const std::vector<Flag>& Flags() {
  static const auto& flags = *new std::vector<Flag>{
      {{"hostfile", "H"}, "FILE", "hosts, a line each: NAME slots=N", Text(&Options::hostfile)},
      {{"hosts"},
       "NODES",
       "the same without a file: HOST[:SLOT,...][@HOST...]",
       Text(&Options::hosts)},
      {{"include", "i"},
       "NODES",
       "these alone: HOST[:SLOT,...][@HOST...]",
       Text(&Options::include)},
      {{"exclude", "e"}, "NODES", "all but these", Text(&Options::exclude)},
      {{"num_nodes"}, "N", "the first N hosts", Number(&Options::num_nodes, 1, kMostRanks)},
      {{"num_gpus"},
       "N",
       "the first N slots of each host",
       Number(&Options::num_gpus, 1, kMostSlots)},
      {{"nnodes"},
       "MIN[:MAX]",
       "how many hosts a start has: MIN alone, or as many as there are from MIN to MAX",
       SetNodes},
      {{"nproc_per_node"}, "N", "ranks of this host: a number, gpu, cpu or auto", SetRanksPerNode},
      {{"standalone"}, "", "this host alone", True(&Options::standalone)},
      {{"max_restarts"},
       "N",
       "how often ranks are started again after a failure (default: 0)",
       Number(&Options::max_restarts, 0)},
      {{"no_ssh"},
       "",
       "start the ranks of this host alone: the command is given on each",
       True(&Options::no_ssh)},
      {{"node_rank"},
       "K",
       "which of the hosts this is, from 0 on",
       [](absl::string_view value, Options& options) {
         BRIGADE_ASSIGN_OR_RETURN(options.node_rank,
                                  NumberOf(value, 0, std::numeric_limits<int>::max()));
         return absl::OkStatus();
       }},
      {{"master_addr"},
       "HOST",
       "where rank 0 is reached (default: an address of the first host)",
       Text(&Options::master_addr)},
      {{"master_port"},
       "PORT",
       "a free port there (default: 0, which finds one)",
       Number(&Options::master_port, 0, 65535)},
      {{"save_pid"},
       "",
       "write the launcher's process id to a file PID.ds in $TMPDIR, or /tmp",
       True(&Options::save_pid)},
      {{"enable_each_rank_log", "log_dir"},
       "DIR",
       "output goes to DIR/rank_N.log on each rank's host",
       Text(&Options::log_directory)},
      {{"bind_cores_to_rank"},
       "",
       "give each rank of a host an equal share of its cores",
       True(&Options::bind_cores)},
      {{"launcher"},
       "NAME",
       "local, ssh, pdsh, openmpi or slurm (default: ssh where a hostfile names hosts)",
       SetLauncher},
      {{"launcher_args"},
       "WORDS",
       "more arguments for ssh, pdsh, mpirun or srun",
       [](absl::string_view value, Options& options) {
         BRIGADE_ASSIGN_OR_RETURN(options.launcher_args, WordsOf(value));
         return absl::OkStatus();
       }},
      {{"ssh"},
       "PROGRAM",
       "what takes HOST COMMAND as ssh does (default: ssh)",
       Text(&Options::ssh)},
      {{"remote_program"},
       "PATH",
       "brigade_launch on other hosts (default: its path here)",
       Text(&Options::remote_program)},
      {{"grace"},
       "TIME",
       "how long ranks may go on after a signal before they are killed (default: 30s)",
       Time(&Options::grace, absl::ZeroDuration())},
      {{"host_timeout"},
       "TIME",
       "how long a host may be silent before it is lost (default: 30s)",
       Time(&Options::host_timeout, absl::Milliseconds(100))},
      {{"no_python"},
       "",
       "run PROGRAM as it is, also if it ends in .py",
       True(&Options::no_python)},
      {{"module", "m"}, "", "PROGRAM is a module of Python's", True(&Options::module)},
      {{"no_local_rank"},
       "",
       "taken and without effect: no rank gets --local_rank",
       [](absl::string_view, Options&) { return absl::OkStatus(); }},
      {{"force_multi"},
       "",
       "taken and without effect: hosts that are named are asked by ssh",
       [](absl::string_view, Options&) { return absl::OkStatus(); }},
      {{"agent"},
       "NAME",
       "what this program gives itself",
       [](absl::string_view value, Options& options) {
         options.agent = std::string(value);
         return absl::OkStatus();
       }},
      {{"agent_patience"},
       "TIME",
       "what this program gives itself",
       Time(&Options::agent_patience, absl::ZeroDuration())},
      {{"help", "h"}, "", "print this", True(&Options::help)},
  };
  return flags;
}

// Without hyphens in front; "-" and "_" are the same inside.
const Flag* Find(absl::string_view name) {
  const std::string wanted = absl::StrReplaceAll(name, {{"-", "_"}});
  for (const Flag& flag : Flags()) {
    for (const char* const each : flag.names) {
      if (wanted == each) return &flag;
    }
  }
  return nullptr;
}

absl::Status Unknown(absl::string_view name) {
  const std::string wanted = absl::StrReplaceAll(name, {{"-", "_"}});
  absl::string_view nearest;
  for (const Flag& flag : Flags()) {
    const absl::string_view each = flag.names[0];
    if (nearest.empty() || EditDistance(wanted, each) < EditDistance(wanted, nearest))
      nearest = each;
  }
  const bool is_near = EditDistance(wanted, nearest) <= 2;
  return Invalid("there is no flag --", device::Printable(name, 100),
                 is_near ? absl::StrCat("; --", nearest, " is the nearest") : "",
                 "; --help lists all");
}

// Whether RunJob starts the ranks of all hosts.
bool IsSupervised(const Options& o) {
  return !o.no_ssh && (!o.launcher.has_value() || *o.launcher == BackEnd::kLocal ||
                       *o.launcher == BackEnd::kSsh);
}

absl::Status CheckTogether(const Options& o) {
  const auto not_with = [](bool first, absl::string_view name, bool second,
                           absl::string_view other) {
    return first && second ? Invalid(name, " does not go with ", other) : absl::OkStatus();
  };
  const bool has_hosts = !o.hostfile.empty() || !o.hosts.empty();
  const bool has_filter = !o.include.empty() || !o.exclude.empty();
  const bool has_first = o.num_nodes > 0 || o.num_gpus > 0;
  const bool remote = o.launcher.has_value() && *o.launcher != BackEnd::kLocal;
  BRIGADE_RETURN_IF_ERROR(
      not_with(!o.include.empty(), "--include", !o.exclude.empty(), "--exclude"));
  BRIGADE_RETURN_IF_ERROR(not_with(has_filter, o.include.empty() ? "--exclude" : "--include",
                                   has_first, "--num_nodes and --num_gpus"));
  BRIGADE_RETURN_IF_ERROR(not_with(o.standalone, "--standalone", has_hosts || o.no_ssh || remote,
                                   "a hostfile, --no_ssh and launchers other than local"));
  BRIGADE_RETURN_IF_ERROR(not_with(o.standalone, "--standalone", o.max_nodes > 1, "--nnodes"));
  BRIGADE_RETURN_IF_ERROR(
      not_with(!o.ranks_per_node.empty(), "--nproc_per_node", o.num_gpus > 0, "--num_gpus"));
  BRIGADE_RETURN_IF_ERROR(not_with(!o.ranks_per_node.empty(), "--nproc_per_node", has_hosts,
                                   "a hostfile, which has slots"));
  BRIGADE_RETURN_IF_ERROR(not_with(!o.hosts.empty(), "--hosts", !o.hostfile.empty(), "--hostfile"));
  BRIGADE_RETURN_IF_ERROR(not_with(o.num_nodes > 0, "--num_nodes", o.max_nodes > 0, "--nnodes"));
  BRIGADE_RETURN_IF_ERROR(not_with(o.no_ssh, "--no_ssh", remote, "a launcher other than local"));
  BRIGADE_RETURN_IF_ERROR(not_with(o.module, "--module", o.no_python, "--no_python"));
  if (remote && !has_hosts && *o.launcher != BackEnd::kSlurm) {
    return Invalid("--launcher=", NameOf(*o.launcher), " needs --hostfile");
  }
  const bool foreign =
      remote && (*o.launcher == BackEnd::kOpenMpi || *o.launcher == BackEnd::kSlurm);
  for (const auto& [is_set, name] :
       {std::pair(!o.log_directory.empty(), "--enable_each_rank_log"),
        std::pair(o.bind_cores, "--bind_cores_to_rank"), std::pair(o.save_pid, "--save_pid")}) {
    if (foreign && is_set) {
      return Invalid(name, " does not go with --launcher=", NameOf(*o.launcher),
                     ", which starts the ranks itself");
    }
  }
  if (o.node_rank.has_value() && !o.no_ssh) return Invalid("--node_rank needs --no_ssh");
  const bool several = o.num_nodes > 1 || o.max_nodes > 1;
  if (several && !has_hosts && !o.no_ssh && o.launcher != BackEnd::kSlurm) {
    return Invalid("several hosts need --hostfile, or --no_ssh with --node_rank on each of them");
  }
  if (o.no_ssh && has_hosts && !o.node_rank.has_value()) {
    return Invalid(
        "--no_ssh needs --node_rank, the number of this host among those of the hostfile");
  }
  if (o.no_ssh && (several || has_hosts) && (o.master_addr.empty() || o.master_port == 0)) {
    return Invalid("--no_ssh needs --master_addr and --master_port, the same on all hosts");
  }
  if (o.max_restarts > 0 && !IsSupervised(o)) {
    return Invalid(
        "--max_restarts needs --launcher=local or ssh: nobody else starts again what "
        "has ended on other hosts");
  }
  return absl::OkStatus();
}

// Of HostsOf, before --nnodes counts them.
absl::StatusOr<std::vector<Host>> AllHostsOf(const Options& options, int gpus) {
  std::vector<Host> hosts;
  if (!options.hostfile.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(const std::string text,
                             device::ReadFile(options.hostfile, int64_t{16} << 20));
    BRIGADE_ASSIGN_OR_RETURN(hosts, HostsFromText(text, options.hostfile));
  } else if (!options.hosts.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(hosts, HostsFromList(options.hosts));
  } else {
    int slots = options.num_gpus > 0 ? options.num_gpus : std::max(1, gpus);
    const std::string& asked = options.ranks_per_node;
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    if (asked == "gpu" && gpus == 0) return Invalid("--nproc_per_node is gpu, and there is none");
    if (asked == "cpu" || (asked == "auto" && gpus == 0)) slots = cores;
    if (const auto number = NumberOf(asked, 1, kMostSlots); number.ok()) slots = *number;
    if (gpus > 0 && options.num_gpus > gpus) {
      return Invalid("--num_gpus is ", options.num_gpus, ", and this host has ", gpus);
    }
    Host host = {"localhost", {}};
    for (int slot = 0; slot < slots; ++slot) host.slots.push_back(slot);
    const int nodes = std::max({1, options.num_nodes, options.max_nodes});
    if (int64_t{nodes} * slots > kMostRanks) {
      return Invalid(nodes, " hosts of ", slots, " slots are more than ", kMostRanks, " ranks");
    }
    for (int n = 0; n < nodes; ++n) {
      hosts.push_back(host);
      if (nodes > 1) hosts.back().name = absl::StrCat("node", n);
    }
    if (options.include.empty() && options.exclude.empty()) return hosts;
  }
  if (!options.include.empty()) return Filter(hosts, Choice::kInclude, options.include);
  if (!options.exclude.empty()) return Filter(hosts, Choice::kExclude, options.exclude);
  return FirstOf(hosts, options.num_nodes, options.num_gpus);
}

}  // namespace

const char* NameOf(BackEnd back_end) { return kBackEnds[static_cast<size_t>(back_end)]; }

absl::StatusOr<Options> ParseCommandLine(absl::Span<const std::string> words) {
  Options options;
  size_t w = 0;
  for (; w < words.size() && absl::StartsWith(words[w], "-"); ++w) {
    if (words[w] == "--") {
      ++w;
      break;
    }
    absl::string_view name = words[w];
    while (absl::StartsWith(name, "-")) name.remove_prefix(1);
    const size_t equals = name.find('=');
    const bool has_value = equals != absl::string_view::npos;
    const absl::string_view given = has_value ? name.substr(equals + 1) : absl::string_view();
    name = name.substr(0, equals);
    const Flag* const flag = Find(name);
    if (flag == nullptr) return Unknown(name);
    absl::string_view value = given;
    if (*flag->value == '\0') {
      if (has_value) return Invalid("--", flag->names[0], " takes no value");
    } else if (!has_value) {
      if (w + 1 == words.size()) {
        return Invalid("--", flag->names[0], " needs a value: ", flag->value);
      }
      value = words[++w];
    }
    if (const absl::Status set = flag->set(value, options); !set.ok()) {
      return Invalid("--", flag->names[0], " is ", Quoted(value), "; ", set.message());
    }
  }
  options.program.assign(words.begin() + static_cast<std::ptrdiff_t>(w), words.end());
  if (options.agent.has_value() || options.help) return options;
  BRIGADE_RETURN_IF_ERROR(CheckTogether(options));
  if (options.program.empty()) return Invalid("no program is given; --help says how");
  return options;
}

absl::StatusOr<std::vector<Host>> HostsOf(const Options& options, int gpus) {
  BRIGADE_ASSIGN_OR_RETURN(std::vector<Host> hosts, AllHostsOf(options, gpus));
  if (options.min_nodes > static_cast<int>(hosts.size())) {
    return Invalid("--nnodes needs ", options.min_nodes, " hosts, and there are ", hosts.size());
  }
  // Who else starts the ranks takes all hosts that are named, and has no use for a reserve.
  if (options.max_nodes > 0 && !IsSupervised(options)) {
    const auto most = std::min(hosts.size(), static_cast<size_t>(options.max_nodes));
    hosts.erase(hosts.begin() + static_cast<std::ptrdiff_t>(most), hosts.end());
  }
  return hosts;
}

std::string HelpText() {
  std::string text =
      "usage: brigade_launch [FLAG...] [--] PROGRAM [ARGUMENT...]\n\n"
      "Starts PROGRAM once for each rank, on this host or on those of a hostfile, and ends all "
      "when "
      "one fails.\n";
  for (const Flag& flag : Flags()) {
    absl::StrAppend(&text, "\n  ");
    for (const char* const name : flag.names) {
      const bool is_short = name[1] == '\0';
      absl::StrAppend(&text, name == flag.names[0] ? "" : ", ", is_short ? "-" : "--", name,
                      *flag.value == '\0' || is_short ? "" : "=", is_short ? "" : flag.value);
    }
    absl::StrAppend(&text, "\n      ", flag.help, "\n");
  }
  return text;
}

}  // namespace brigade::launch
