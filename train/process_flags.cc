#include "brigade/train/process_flags.h"

#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "brigade/device/command_line.h"

ABSL_FLAG(std::string, rendezvous_folder, "",
          "a folder that all hosts share, new for each run, where ranks that are processes find "
          "each other; empty: at MASTER_ADDR and MASTER_PORT");
ABSL_FLAG(std::string, interface, "",
          "the network interface, or address, at which a rank that is a process listens, as eth0; "
          "empty: the one that leads to the others");

namespace brigade::train {

TrainerOptions ProcessFlags(bool are_processes, Refusals& refusals) {
  TrainerOptions options;
  options.rendezvous_folder = device::FromUsersFolder(absl::GetFlag(FLAGS_rendezvous_folder));
  options.interface = absl::GetFlag(FLAGS_interface);
  for (const auto& [flag, value] : {std::pair("rendezvous_folder", options.rendezvous_folder),
                                    {"interface", options.interface}}) {
    if (are_processes || value.empty()) continue;
    refusals.Add(flag,
                 " is for ranks that are processes, which need a launcher: mpirun, torchrun or "
                 "srun");
  }
  return options;
}

}  // namespace brigade::train
