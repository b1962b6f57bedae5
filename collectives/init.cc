#include "brigade/collectives/init.h"

#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/bootstrap/file_store.h"
#include "brigade/collectives/bootstrap/tcp_store.h"
#include "brigade/collectives/engines/gloo/gloo_engine.h"
#include "brigade/collectives/engines/nccl/nccl_engine.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives {
namespace {

constexpr Backend kBackends[] = {Backend::kAuto, Backend::kThreads, Backend::kGloo, Backend::kNccl};

Backend Resolve(const InitOptions& options, device::Device device) {
  if (options.backend != Backend::kAuto) return options.backend;
  if (options.group != nullptr) return Backend::kThreads;
  return device.kind == device::DeviceKind::kCuda ? Backend::kNccl : Backend::kGloo;
}

// InvalidArgument naming an option that is set and that the backend does not read.
absl::Status CheckOptions(Backend backend, const InitOptions& options) {
  const InitOptions unset;
  const bool threads = backend == Backend::kThreads, nccl = backend == Backend::kNccl;
  const struct {
    absl::string_view name;
    bool is_set, is_read;
  } checks[] = {
      {"group", options.group != nullptr, threads},
      {"rendezvous_folder", options.rendezvous_folder != unset.rendezvous_folder, !threads},
      {"job_values", options.job_values != unset.job_values, !threads},
      {"interface", options.interface != unset.interface, !threads},
      {"connect_timeout", options.connect_timeout != unset.connect_timeout, !threads},
      {"timeout", options.timeout != unset.timeout, !threads},
      {"verify_collectives", options.verify_collectives != unset.verify_collectives, nccl},
      {"nccl", options.nccl.has_value(), nccl},
  };
  for (const auto& check : checks) {
    if (!check.is_set || check.is_read) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the ", Name(backend), " backend does not take InitOptions::", check.name));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Engine>> CreateThreadsEngine(const LaunchInfo& launch_info,
                                                            const InitOptions& options,
                                                            device::Context& context) {
  if (options.group == nullptr) {
    return absl::InvalidArgumentError("the threads backend needs InitOptions::group");
  }
  if (launch_info.size != options.group->size()) {
    return absl::InvalidArgumentError(absl::StrCat("LaunchInfo::size is ", launch_info.size,
                                                   ", InitOptions::group has ",
                                                   options.group->size(), " ranks"));
  }
  return options.group->Join(launch_info.rank, context);
}

absl::StatusOr<std::shared_ptr<Store>> CreateStore(const LaunchInfo& launch_info,
                                                   const InitOptions& options) {
  if (!options.rendezvous_folder.empty()) {
    return FileStore::Create({.rank = launch_info.rank,
                              .size = launch_info.size,
                              .folder = options.rendezvous_folder,
                              .timeout = options.connect_timeout,
                              .secret = launch_info.secret.value_or(JobSecret::Public()),
                              .values = options.job_values});
  }
  return TcpStore::Create(
      {.rank = launch_info.rank,
       .size = launch_info.size,
       .master_addr = launch_info.master_addr,
       .master_port = launch_info.master_port,
       .agent_store = launch_info.agent_store,
       .timeout = options.connect_timeout,
       .job = {
           .secret = launch_info.secret, .name = launch_info.job, .values = options.job_values}});
}

absl::StatusOr<bool> VerifiesMessages() {
  constexpr char kVariable[] = "BRIGADE_VERIFY_MESSAGES";
  const char* const value = std::getenv(kVariable);
  const absl::string_view text = value == nullptr ? "" : value;
  if (text == "1") return true;
  if (text.empty() || text == "0") return false;
  return absl::InvalidArgumentError(
      absl::StrCat(kVariable, " is \"", device::Printable(text), "\"; it must be 0 or 1"));
}

absl::StatusOr<GlooOptions> ToGlooOptions(const LaunchInfo& launch_info,
                                          const InitOptions& options) {
  GlooOptions gloo;
  gloo.rank = launch_info.rank;
  gloo.size = launch_info.size;
  gloo.interface = options.interface;
  gloo.connect_timeout = options.connect_timeout;
  gloo.connect_deadline = device::SteadyTime::Now() + options.connect_timeout;
  gloo.timeout = options.timeout;
  BRIGADE_ASSIGN_OR_RETURN(gloo.verify_messages, VerifiesMessages());
  if (launch_info.size > 1) {
    BRIGADE_ASSIGN_OR_RETURN(gloo.store, CreateStore(launch_info, options));
  }
  return gloo;
}

absl::StatusOr<std::unique_ptr<Engine>> CreateProcessesEngine(const LaunchInfo& launch_info,
                                                              const InitOptions& options,
                                                              device::Context& context) {
  // Before the others connect to a rank that cannot go on.
  if (context.device().kind != device::DeviceKind::kCpu) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gloo backend needs a CPU context, not ", context.device().ToString()));
  }
  BRIGADE_ASSIGN_OR_RETURN(const GlooOptions gloo, ToGlooOptions(launch_info, options));
  return CreateGlooEngine(gloo, context);
}

absl::StatusOr<std::unique_ptr<Engine>> CreateGpusEngine(const LaunchInfo& launch_info,
                                                         const InitOptions& options,
                                                         device::Context& context) {
  NcclOptions nccl;
  if (options.nccl.has_value()) {
    nccl.api = *options.nccl;
  } else {
    BRIGADE_ASSIGN_OR_RETURN(nccl.api, LoadNccl());
  }
  BRIGADE_RETURN_IF_ERROR(CheckNcclDevice(nccl, context));
  nccl.timeout = options.timeout;
  nccl.compare_calls = options.verify_collectives;
  device::ContextOptions host;
  host.compute_threads = 1;
  host.name = "side channel";
  BRIGADE_ASSIGN_OR_RETURN(std::shared_ptr<device::Context> side_context,
                           device::Context::Create(host));
  BRIGADE_ASSIGN_OR_RETURN(GlooOptions gloo, ToGlooOptions(launch_info, options));
  gloo.timeout += options.timeout / 4;
  BRIGADE_ASSIGN_OR_RETURN(auto side, CreateGlooEngine(gloo, std::move(side_context)));
  return CreateNcclEngine(nccl, std::move(side), context);
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const LaunchInfo& launch_info,
                                                     const InitOptions& options,
                                                     device::Context& context) {
  const Backend backend = Resolve(options, context.device());
  BRIGADE_RETURN_IF_ERROR(CheckOptions(backend, options));
  switch (backend) {
    case Backend::kThreads:
      return CreateThreadsEngine(launch_info, options, context);
    case Backend::kGloo:
      return CreateProcessesEngine(launch_info, options, context);
    case Backend::kNccl:
      return CreateGpusEngine(launch_info, options, context);
    case Backend::kAuto:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no backend ", static_cast<int>(options.backend)));
}

}  // namespace

absl::string_view Name(Backend backend) {
  switch (backend) {
    case Backend::kAuto:
      return "auto";
    case Backend::kThreads:
      return "threads";
    case Backend::kGloo:
      return "gloo";
    case Backend::kNccl:
      return "nccl";
  }
  return "invalid";
}

absl::StatusOr<Backend> ParseBackend(absl::string_view name) {
  for (const Backend backend : kBackends) {
    if (name == Name(backend)) return backend;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the backend is \"", name, "\"; it must be auto, threads, gloo or nccl"));
}

absl::StatusOr<std::unique_ptr<Communicator>> Init(const LaunchInfo& launch_info,
                                                   const InitOptions& options,
                                                   device::Context& context) {
  BRIGADE_ASSIGN_OR_RETURN(auto engine, CreateEngine(launch_info, options, context));
  return Communicator::Create(std::move(engine), context, options.communicator);
}

}  // namespace brigade::collectives
