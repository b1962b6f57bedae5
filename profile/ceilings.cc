#include "brigade/profile/ceilings.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "brigade/collectives/agree.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/buffer.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/blas.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::profile {
namespace {

using Json = nlohmann::json;
using collectives::CollectiveKind;
using collectives::CollectiveSignature;

constexpr double kTera = 1e12, kGiga = 1e9;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The least seconds of a call of `enqueue`, of several rounds that all ranks begin together.
template <typename Enqueue>
absl::StatusOr<double> LeastSecondsOf(Enqueue enqueue, collectives::Communicator& world,
                                      device::Stream& stream) {
  constexpr int kRounds = 5;
  // The first call warms up.
  BRIGADE_RETURN_IF_ERROR(enqueue());
  BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
  double least = 0;
  for (int round = 0; round < kRounds; ++round) {
    BRIGADE_RETURN_IF_ERROR(world.AllGatherHost({0}).status());
    const double begin = Now();
    BRIGADE_RETURN_IF_ERROR(enqueue());
    BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
    const double seconds = Now() - begin;
    if (round == 0 || seconds < least) least = seconds;
  }
  return std::max(least, 1e-9);
}

// Of a rank that has no memory for it: it only takes part in the rounds of the others.
absl::StatusOr<double> NotKnown(collectives::Communicator& world, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(LeastSecondsOf([] { return absl::OkStatus(); }, world, stream).status());
  return 0;
}

// Large enough that a GPU's launches do not count.
absl::StatusOr<double> MatmulRate(precision::DType dtype, collectives::Communicator& world,
                                  device::Context& context, device::Stream& stream) {
  const bool is_cpu = context.device().kind == device::DeviceKind::kCpu;
  const int calls = is_cpu ? 1 : 4;
  int64_t n = is_cpu ? 512 : 8192;
  std::unique_ptr<nn::Blas> blas;
  std::vector<device::Buffer> matrices;
  const auto allocate = [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(blas,
                             nn::Blas::Create(context, nn::Blas::WorkspaceBytes(dtype, n, n, n)));
    for (int i = 0; i < 3; ++i) {
      BRIGADE_ASSIGN_OR_RETURN(
          device::Buffer matrix,
          context.Allocate(n * n * precision::SizeOf(dtype), device::Purpose::kScratch,
                           "matrix of the ceiling"));
      matrices.push_back(std::move(matrix));
    }
    return absl::OkStatus();
  };
  // A training that fills its device goes on, too, with a ceiling of smaller products.
  for (absl::Status status = allocate(); !status.ok(); status = allocate()) {
    constexpr int64_t kLeast = 64;
    if (!absl::IsResourceExhausted(status)) return status;
    matrices.clear();
    blas.reset();
    if (n <= kLeast) return NotKnown(world, stream);
    n /= 2;
  }
  for (device::Buffer& matrix : matrices) {
    // Numbers between 0.7 and 2 in every type, whose products neither overflow nor vanish.
    BRIGADE_RETURN_IF_ERROR(stream.FillBytes(matrix.data(), 0x3f, matrix.bytes()));
  }
  const nn::GemmArguments product = {.dtype = dtype,
                                     .m = n,
                                     .n = n,
                                     .k = n,
                                     .a = {.data = matrices[0].data(), .leading = n},
                                     .b = {.data = matrices[1].data(), .leading = n},
                                     .c = {.data = matrices[2].data(), .leading = n}};
  const auto enqueue = [&] {
    absl::Status status;
    for (int call = 0; call < calls; ++call) status.Update(blas->Gemm(product, stream));
    return status;
  };
  BRIGADE_ASSIGN_OR_RETURN(const double seconds, LeastSecondsOf(enqueue, world, stream));
  const auto size = static_cast<double>(n);
  return calls * 2 * size * size * size / seconds;
}

absl::StatusOr<double> MemoryRate(collectives::Communicator& world, device::Context& context,
                                  device::Stream& stream) {
  int64_t bytes = int64_t{64} << 20;
  if (context.device().kind != device::DeviceKind::kCpu) bytes = int64_t{1} << 30;
  std::optional<device::Buffer> from, to;
  for (; !to.has_value(); bytes /= 2) {
    from.reset();
    auto first = context.Allocate(bytes, device::Purpose::kScratch, "memory of the ceiling");
    auto second = context.Allocate(bytes, device::Purpose::kScratch, "memory of the ceiling");
    const absl::Status status = first.ok() ? second.status() : first.status();
    if (status.ok()) {
      from = *std::move(first);
      to = *std::move(second);
      break;
    }
    if (!absl::IsResourceExhausted(status)) return status;
    constexpr int64_t kLeast = 4096;
    if (bytes <= kLeast) return NotKnown(world, stream);
  }
  BRIGADE_RETURN_IF_ERROR(stream.FillBytes(from->data(), 0, bytes));
  BRIGADE_RETURN_IF_ERROR(stream.FillBytes(to->data(), 0, bytes));
  BRIGADE_ASSIGN_OR_RETURN(
      const double seconds,
      LeastSecondsOf([&] { return stream.Copy(to->data(), from->data(), bytes); }, world, stream));
  return 2 * static_cast<double>(bytes) / seconds;
}

// The collectives that have a ceiling, and what a rank's array of each is, in bytes; of an
// all-to-all half of it, since it needs another one to go to.
constexpr CollectiveKind kMeasured[] = {CollectiveKind::kAllGather,     CollectiveKind::kAllReduce,
                                        CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                                        CollectiveKind::kShift,         CollectiveKind::kBroadcast};
constexpr int64_t kMessageBytes = int64_t{1} << 20;

CollectiveSignature SignatureOf(CollectiveKind kind, precision::DType dtype,
                                const collectives::ReduceOptions& reduce) {
  CollectiveSignature signature = {
      .kind = kind, .dtype = precision::DType::kUint8, .count = kMessageBytes};
  if (kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter) {
    signature.algorithm = reduce.algorithm;
    signature.dtype = dtype;
    signature.op = reduce.op;
    signature.reduction = reduce.reduction;
    signature.count = kMessageBytes / precision::SizeOf(dtype);
  } else if (kind == CollectiveKind::kAllGather) {
    signature.algorithm = collectives::GatherOptions().algorithm;
  } else if (kind == CollectiveKind::kAllToAll) {
    signature.count = kMessageBytes / 2;
  } else if (kind == CollectiveKind::kShift) {
    signature.root = 1;
  }
  return signature;
}

// `data`: of kMessageBytes for each rank.
absl::Status Enqueue(const CollectiveSignature& signature, collectives::Communicator& group,
                     char* data, device::Stream& stream) {
  const int64_t count = signature.count;
  char* const own = data + group.rank() * kMessageBytes;
  const collectives::ReduceOptions reduce = {signature.op, signature.reduction,
                                             signature.algorithm};
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
      return group.AllReduce(own, own, count, signature.dtype, reduce, stream);
    case CollectiveKind::kReduceScatter:
      return group.ReduceScatter(data, own, count, signature.dtype, reduce, stream);
    case CollectiveKind::kAllGather:
      return group.AllGather(own, data, count, signature.dtype, {signature.algorithm}, stream);
    case CollectiveKind::kAllToAll:
      return group.AllToAll(data, data + group.size() * count, count, signature.dtype, stream);
    case CollectiveKind::kShift:
      return group.Shift(data, data + count, count, signature.dtype, signature.root, stream);
    case CollectiveKind::kBroadcast:
      return group.Broadcast(own, own, count, signature.dtype, signature.root, stream);
    case CollectiveKind::kSend:
    case CollectiveKind::kBarrier:
      break;
  }
  return absl::OkStatus();
}

// What a rank sends; of a rank alone nothing is known.
absl::Status MeasureNetwork(precision::DType dtype, const collectives::ReduceOptions& reduce,
                            collectives::Communicator& world, device::Context& context,
                            device::Stream& stream, Ceilings& ceilings) {
  if (world.size() == 1) return absl::OkStatus();
  absl::StatusOr<device::Buffer> allocated = context.Allocate(
      kMessageBytes * world.size(), device::Purpose::kCommunication, "messages of the ceiling");
  const absl::Status fits = collectives::AgreeOnStatus(allocated.status(), world);
  if (absl::IsResourceExhausted(fits)) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(fits);
  device::Buffer all = *std::move(allocated);
  BRIGADE_ASSIGN_OR_RETURN(const auto group, world.Split(0, world.rank()));
  // Zeros: sums of any type stay numbers.
  BRIGADE_RETURN_IF_ERROR(stream.FillBytes(all.data(), 0, all.bytes()));
  for (const CollectiveKind kind : kMeasured) {
    // The same on all ranks: there are algorithms that have one kind alone.
    const auto signature = group->Resolve(SignatureOf(kind, dtype, reduce));
    if (!signature.ok()) continue;
    // What has no memory for its workspace is not known.
    const absl::Status reserved = collectives::AgreeOnStatus(group->Reserve(*signature), world);
    if (absl::IsResourceExhausted(reserved)) continue;
    BRIGADE_RETURN_IF_ERROR(reserved);
    const auto enqueue = [&] {
      return Enqueue(*signature, *group, static_cast<char*>(all.data()), stream);
    };
    BRIGADE_ASSIGN_OR_RETURN(const double seconds, LeastSecondsOf(enqueue, world, stream));
    BRIGADE_RETURN_IF_ERROR(group->status());
    // By the formula: some engines count when a call runs, others when it is enqueued.
    const auto sent =
        static_cast<double>(collectives::WireBytes(*signature, group->rank(), group->size()));
    ceilings.collective_bytes_per_second[std::string(collectives::Name(kind))] = sent / seconds;
  }
  const auto gather = std::string(collectives::Name(CollectiveKind::kAllGather));
  ceilings.network_bytes_per_second = ceilings.OfCollective(gather);
  // The group ends when no rank is in a call of it any more.
  return world.AllGatherHost({0}).status();
}

absl::Status Wrong(absl::string_view key, const Json& value, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", key, "\" is ", value.dump(-1, ' ', true, Json::error_handler_t::replace),
                   "; it must be ", what));
}

// Of the keys of collectives, behind their names.
constexpr absl::string_view kRate = "_gigabytes_per_s";
constexpr absl::string_view kWhatRatesAre = "a number, 0 to 1e9";

bool IsRate(const Json& value) {
  constexpr double kMost = 1e9;
  return value.is_number() && value.get<double>() >= 0 && value.get<double>() <= kMost;
}

}  // namespace

absl::StatusOr<Ceilings> MeasureCeilings(precision::DType dtype,
                                         const collectives::ReduceOptions& reduce,
                                         collectives::Communicator& world, device::Context& context,
                                         device::Stream& stream) {
  Ceilings ceilings = {.source = "measured"};
  BRIGADE_ASSIGN_OR_RETURN(ceilings.flops_per_second, MatmulRate(dtype, world, context, stream));
  BRIGADE_ASSIGN_OR_RETURN(ceilings.memory_bytes_per_second, MemoryRate(world, context, stream));
  BRIGADE_RETURN_IF_ERROR(MeasureNetwork(dtype, reduce, world, context, stream, ceilings));
  return ceilings;
}

std::string CeilingsJson(const Ceilings& ceilings, const Machine& machine) {
  std::string text = absl::StrFormat(
      "{\"device\": \"%s\", \"dtype\": \"%s\", \"ranks\": %d, \"matmul_tflops\": %.6g, "
      "\"memory_gigabytes_per_s\": %.6g, \"network_gigabytes_per_s\": %.6g",
      machine.device, machine.dtype, machine.ranks, ceilings.flops_per_second / kTera,
      ceilings.memory_bytes_per_second / kGiga, ceilings.network_bytes_per_second / kGiga);
  for (const auto& [name, rate] : ceilings.collective_bytes_per_second) {
    absl::StrAppendFormat(&text, ", \"%s%s\": %.6g", name, kRate, rate / kGiga);
  }
  return absl::StrCat(text, "}\n");
}

absl::StatusOr<Ceilings> CeilingsFromJson(absl::string_view text, const Machine& machine) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError("ceilings are no JSON object");
  }
  Ceilings ceilings;
  const std::pair<const char*, std::pair<double*, double>> numbers[] = {
      {"matmul_tflops", {&ceilings.flops_per_second, kTera}},
      {"memory_gigabytes_per_s", {&ceilings.memory_bytes_per_second, kGiga}},
      {"network_gigabytes_per_s", {&ceilings.network_bytes_per_second, kGiga}}};
  for (const auto& [key, value] : json.items()) {
    bool is_known = false;
    for (const auto& [name, to] : numbers) {
      if (key != name) continue;
      is_known = true;
      if (!IsRate(value)) return Wrong(key, value, kWhatRatesAre);
      *to.first = value.get<double>() * to.second;
    }
    for (const CollectiveKind kind : kMeasured) {
      const std::string name(collectives::Name(kind));
      if (key != absl::StrCat(name, kRate)) continue;
      is_known = true;
      if (!IsRate(value)) return Wrong(key, value, kWhatRatesAre);
      ceilings.collective_bytes_per_second[name] = value.get<double>() * kGiga;
    }
    const std::pair<const char*, Json> others[] = {
        {"device", machine.device}, {"dtype", machine.dtype}, {"ranks", machine.ranks}};
    for (const auto& [name, wanted] : others) {
      if (key != name) continue;
      is_known = true;
      if (value != wanted) {
        return Wrong(key, value,
                     absl::StrCat(wanted.dump(-1, ' ', true, Json::error_handler_t::replace),
                                  " as in this training"));
      }
    }
    if (!is_known) {
      return absl::InvalidArgumentError(
          absl::StrCat(Json(key).dump(-1, ' ', true, Json::error_handler_t::replace),
                       " is no key of ceilings: these have device, dtype, ranks, matmul_tflops, "
                       "memory_gigabytes_per_s, network_gigabytes_per_s, and of collectives "
                       "all_reduce_gigabytes_per_s and the like"));
    }
  }
  return ceilings;
}

absl::StatusOr<Ceilings> CeilingsOf(const std::string& path, precision::DType dtype,
                                    const collectives::ReduceOptions& reduce,
                                    collectives::Communicator& world, device::Context& context,
                                    device::Stream& stream) {
  if (path.empty()) return MeasureCeilings(dtype, reduce, world, context, stream);
  const Machine machine = {.device = std::string(device::ToString(context.device().kind)),
                           .dtype = std::string(precision::ShortName(dtype)),
                           .ranks = world.size()};
  constexpr int64_t kMostBytes = 1 << 16;
  constexpr char kThere[] = "file";
  std::string text;
  absl::Status status;
  const bool reads = world.rank() == 0;
  if (reads) {
    absl::StatusOr<std::string> read = device::ReadFile(path, kMostBytes);
    // An empty one is there, too, and no ceilings.
    if (read.ok()) text = absl::StrCat(kThere, *read);
    if (!read.ok() && !absl::IsNotFound(read.status())) status = read.status();
  }
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(status, world));
  BRIGADE_ASSIGN_OR_RETURN(const bool is_there, [&]() -> absl::StatusOr<bool> {
    BRIGADE_ASSIGN_OR_RETURN(const auto all, collectives::AllGatherBytes(text, world));
    text = all[0];
    return !text.empty();
  }());
  if (is_there) {
    absl::StatusOr<Ceilings> ceilings = CeilingsFromJson(absl::StripPrefix(text, kThere), machine);
    if (!ceilings.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", ceilings.status().message()));
    }
    ceilings->source = absl::StrCat("from ", path);
    return ceilings;
  }
  BRIGADE_ASSIGN_OR_RETURN(Ceilings ceilings,
                           MeasureCeilings(dtype, reduce, world, context, stream));
  if (reads) {
    absl::StatusOr<device::FileReplacement> file = device::FileReplacement::Begin(path);
    status = file.status();
    if (file.ok()) {
      file->Write(CeilingsJson(ceilings, machine));
      status = file->Commit();
    }
  }
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(status, world));
  return ceilings;
}

}  // namespace brigade::profile
