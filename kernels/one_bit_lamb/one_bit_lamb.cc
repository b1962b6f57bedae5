#include "brigade/kernels/one_bit_lamb/one_bit_lamb.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/update_cpu.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/kernels/lamb/lamb_tensors.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cpu.h"
#include "brigade/kernels/value_range.h"
#include "brigade/precision/dtype.h"
#include "brigade/precision/float16.h"

#if BRIGADE_CUDA
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cuda.h"
#endif

namespace brigade::kernels {
namespace {

absl::Status CheckTensors(const char* name, absl::Span<const LambTensor> tensors, size_t groups,
                          size_t sums, size_t numbers) {
  BRIGADE_ASSIGN_OR_RETURN(const int64_t needed, LambTilesNeeded(name, tensors, groups));
  if (static_cast<int64_t>(sums) < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": sums of ", sums, " tiles, the list needs ", needed));
  }
  if (numbers < tensors.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": numbers of ", numbers, " tensors, the list has ", tensors.size()));
  }
  return absl::OkStatus();
}

// Of segments and messages: the tensors and tiles that they name.
absl::Status CheckTensor(const char* name, size_t index, int32_t tensor, size_t tensors) {
  if (tensor >= 0 && static_cast<size_t>(tensor) < tensors) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": tensor of segment ", index, " is ",
                                                 tensor, ", must be 0 to ",
                                                 static_cast<int64_t>(tensors) - 1));
}

absl::Status CheckTiles(const char* name, size_t index, const OneBitLambSegment& s, size_t sums) {
  const int64_t tiles = CeilDiv(s.size, kLambTile), room = static_cast<int64_t>(sums) - tiles;
  if (s.first_tile >= 0 && s.first_tile <= room) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": segment ", index, " has ", tiles,
                                                 " tiles from ", s.first_tile, " on, sums has ",
                                                 sums));
}

template <typename T>
absl::Status AddSpan(ListArguments& arguments, const char* name, absl::Span<T> values) {
  return arguments.AddOperand(name, values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace

absl::Status Validate(const OneBitLambCoefficients& c, const char* name) {
  BRIGADE_RETURN_IF_ERROR(CheckInRange(name, "coeff_beta", -1, c.coeff_beta, kBelowOne));
  BRIGADE_RETURN_IF_ERROR(CheckInRange(name, "factor_max", -1, c.factor_max, kPositive));
  BRIGADE_RETURN_IF_ERROR(CheckInRange(name, "factor_min", -1, c.factor_min,
                                       {0x1p-149, c.factor_max, "more than 0, to factor_max"}));
  return CheckInRange(name, "factor_threshold", -1, c.factor_threshold, kBelowOne);
}

absl::Status OneBitLambRatios(absl::Span<const LambTensor> tensors, const LambOptions& options,
                              const OneBitLambConstants& constants, absl::Span<const double> sums,
                              absl::Span<OneBitLambNumbers> numbers, device::Stream& stream) {
  constexpr char kName[] = "one_bit_lamb_ratios";
  BRIGADE_RETURN_IF_ERROR(Validate(options, kName));
  BRIGADE_RETURN_IF_ERROR(
      CheckTensors(kName, tensors, options.groups.size(), sums.size() / 2, numbers.size()));
  ListArguments arguments(kName, {}, stream);
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "sums", sums));
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "numbers", numbers));
  BRIGADE_RETURN_IF_ERROR(AddStep(kName, options.state, options.group_steps, options.one_step,
                                  options.groups.size(), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const LambParameters parameters = MakeLambParameters(options);
  const auto* const tiles = reinterpret_cast<const LambSums*>(sums.data());
  OneBitLambNumbers* const to = numbers.data();
  return EnqueueLambTensors(
      {kName, arguments.accesses()}, tensors, stream,
      [parameters, constants, tiles, to](absl::Span<const LambTensor> list) {
        if (SkipsStep(parameters)) return;
        for (size_t i = 0; i < list.size(); ++i) {
          const float trust = LambTrustOf(list[i], parameters, tiles);
          to[i].ratio = OneBitLambRatio(constants, to[i].ratio, trust);
        }
      },
      [&](auto cuda_stream) {
        return LaunchOneBitLambRatios(tensors.data(), static_cast<int64_t>(tensors.size()),
                                      parameters, constants, tiles, to, cuda_stream);
      });
}

absl::Status OneBitLambFreeze(absl::Span<const OneBitLambSegment> segments,
                              absl::Span<const OneBitLambNumbers> numbers,
                              absl::Span<OneBitLambSums> sums, device::Stream& stream) {
  constexpr char kName[] = "one_bit_lamb_freeze";
  ListArguments arguments(
      kName, {{"m", sizeof(float), false}, {"v", sizeof(float), false}, {"fresh", 4, true}},
      stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const OneBitLambSegment& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(arguments.Add(static_cast<int64_t>(i), s.size, {s.m, s.v, s.fresh}));
    BRIGADE_RETURN_IF_ERROR(CheckTensor(kName, i, s.tensor, numbers.size()));
    BRIGADE_RETURN_IF_ERROR(CheckTiles(kName, i, s, sums.size()));
  }
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "numbers", numbers));
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "sums", sums));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const OneBitLambNumbers* const of = numbers.data();
  OneBitLambSums* const to = sums.data();
  return EnqueueList(
      {kName, arguments.accesses()}, segments, kLambTile, stream,
      [of, to](auto plan, device::ThreadPool& pool) {
        ForEachRange(plan, kLambTile, pool,
                     [&](const OneBitLambSegment& s, int64_t begin, int64_t end, int64_t) {
                       if (of[s.tensor].scale == 0.0f) OneBitLambFreezeRange(s, begin, end, to);
                     });
      },
      [&](auto cuda_stream) {
        return LaunchOneBitLambFreeze(segments.data(), static_cast<int64_t>(segments.size()), of,
                                      to, cuda_stream);
      });
}

absl::Status OneBitLambScales(absl::Span<const LambTensor> tensors, absl::Span<const int64_t> sizes,
                              absl::Span<const OneBitLambSums> sums, double* total,
                              absl::Span<OneBitLambNumbers> numbers, device::Stream& stream) {
  constexpr char kName[] = "one_bit_lamb_scales";
  BRIGADE_RETURN_IF_ERROR(CheckTensors(kName, tensors, 0, sums.size(), numbers.size()));
  if (sizes.size() != tensors.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": sizes of ", sizes.size(), " tensors, of ", tensors.size()));
  }
  ListArguments arguments(kName, {}, stream);
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "sums", sums));
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "numbers", numbers));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("total", total, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const OneBitLambSums* const tiles = sums.data();
  OneBitLambNumbers* const to = numbers.data();
  const std::vector<int64_t> counts(sizes.begin(), sizes.end());
  return EnqueueLambTensors(
      {kName, arguments.accesses()}, tensors, stream,
      [tiles, to, counts](absl::Span<const LambTensor> list) {
        double sum = 0.0;
        for (size_t i = 0; i < list.size(); ++i) {
          sum = precision::Add(sum, OneBitLambRootMeanSquare(list[i], counts[i], tiles));
        }
        for (size_t i = 0; i < list.size(); ++i) {
          if (to[i].scale != 0.0f) continue;
          to[i].scale = OneBitLambScale(sum, static_cast<int64_t>(list.size()),
                                        OneBitLambRootMeanSquare(list[i], counts[i], tiles));
          to[i].factor = 1.0f;
        }
      },
      [&](auto cuda_stream) {
        return LaunchOneBitLambScales(tensors.data(), sizes.data(),
                                      static_cast<int64_t>(tensors.size()), tiles, total, to,
                                      cuda_stream);
      });
}

absl::Status OneBitLambSend(absl::Span<const OneBitLambMessage> messages,
                            const LambOptions& options, absl::Span<const OneBitLambNumbers> numbers,
                            device::Stream& stream) {
  static constexpr char kName[] = "one_bit_lamb_send";
  BRIGADE_RETURN_IF_ERROR(Validate(options, kName));
  ListArguments arguments(kName,
                          {{"m", sizeof(float), false},
                           {"grad", precision::SizeOf(options.grad_dtype), false},
                           {"message", sizeof(float), true}},
                          stream);
  for (size_t i = 0; i < messages.size(); ++i) {
    const OneBitLambMessage& s = messages[i];
    BRIGADE_RETURN_IF_ERROR(
        arguments.Add(static_cast<int64_t>(i), s.size, {s.m, s.grad, s.message}));
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex(kName, i, s.group, options.groups.size()));
    BRIGADE_RETURN_IF_ERROR(CheckTensor(kName, i, s.tensor, numbers.size()));
  }
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "numbers", numbers));
  BRIGADE_RETURN_IF_ERROR(AddStep(kName, options.state, options.group_steps, options.one_step,
                                  options.groups.size(), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const LambParameters parameters = MakeLambParameters(options);
  const OneBitLambNumbers* const of = numbers.data();
  absl::Status status;
  precision::VisitFloat(options.grad_dtype, [&](auto grad) {
    using Grad = decltype(grad);
    status = EnqueueList(
        {kName, arguments.accesses()}, messages, kLambTile, stream,
        [parameters, of](auto plan, device::ThreadPool& pool) -> absl::Status {
          if (!SkipsStep(parameters)) {
            BRIGADE_RETURN_IF_ERROR(CheckStep<LambPolicy>(kName, plan, parameters));
          }
          ForEachRange(plan, kLambTile, pool,
                       [&](const OneBitLambMessage& s, int64_t begin, int64_t end, int64_t) {
                         static_cast<void>(OneBitLambSendRange<Grad>(
                             s, parameters, of[s.tensor].scale, begin, end));
                       });
          return absl::OkStatus();
        },
        [&](auto cuda_stream) {
          return LaunchOneBitLambSend<Grad>(messages.data(), static_cast<int64_t>(messages.size()),
                                            parameters, of, cuda_stream);
        });
  });
  return status;
}

absl::Status OneBitLambReceive(absl::Span<const OneBitLambMessage> messages,
                               absl::Span<const OneBitLambNumbers> numbers,
                               device::Stream& stream) {
  constexpr char kName[] = "one_bit_lamb_receive";
  ListArguments arguments(kName, {{"message", sizeof(float), true}}, stream);
  for (size_t i = 0; i < messages.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(
        arguments.Add(static_cast<int64_t>(i), messages[i].size, {messages[i].message}));
    BRIGADE_RETURN_IF_ERROR(CheckTensor(kName, i, messages[i].tensor, numbers.size()));
  }
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "numbers", numbers));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const OneBitLambNumbers* const of = numbers.data();
  return EnqueueList(
      {kName, arguments.accesses()}, messages, kLambTile, stream,
      [of](auto plan, device::ThreadPool& pool) {
        ForEachRange(plan, kLambTile, pool,
                     [&](const OneBitLambMessage& s, int64_t begin, int64_t end, int64_t) {
                       OneBitLambReceiveRange(s, of[s.tensor].scale, begin, end);
                     });
      },
      [&](auto cuda_stream) {
        return LaunchOneBitLambReceive(messages.data(), static_cast<int64_t>(messages.size()), of,
                                       cuda_stream);
      });
}

absl::Status OneBitLambMoments(absl::Span<const OneBitLambSegment> segments,
                               const LambOptions& options, absl::Span<OneBitLambSums> sums,
                               device::Stream& stream) {
  static constexpr char kName[] = "one_bit_lamb_moments";
  BRIGADE_RETURN_IF_ERROR(Validate(options, kName));
  ListArguments arguments(kName,
                          {{"param", sizeof(float), false},
                           {"m", sizeof(float), true},
                           {"v", sizeof(float), false},
                           {"fresh", sizeof(float), true},
                           {"mean", sizeof(float), false}},
                          stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const OneBitLambSegment& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(
        arguments.Add(static_cast<int64_t>(i), s.size, {s.param, s.m, s.v, s.fresh, s.mean}));
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex(kName, i, s.group, options.groups.size()));
    BRIGADE_RETURN_IF_ERROR(CheckTiles(kName, i, s, sums.size()));
  }
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "sums", sums));
  BRIGADE_RETURN_IF_ERROR(AddStep(kName, options.state, options.group_steps, options.one_step,
                                  options.groups.size(), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const LambParameters parameters = MakeLambParameters(options);
  OneBitLambSums* const to = sums.data();
  return EnqueueList(
      {kName, arguments.accesses()}, segments, kLambTile, stream,
      [parameters, to](auto plan, device::ThreadPool& pool) -> absl::Status {
        if (SkipsStep(parameters)) return absl::OkStatus();
        BRIGADE_RETURN_IF_ERROR(CheckStep<LambPolicy>(kName, plan, parameters));
        ForEachRange(plan, kLambTile, pool,
                     [&](const OneBitLambSegment& s, int64_t begin, int64_t end, int64_t) {
                       static_cast<void>(OneBitLambMomentsRange(s, parameters, begin, end, to));
                     });
        return absl::OkStatus();
      },
      [&](auto cuda_stream) {
        return LaunchOneBitLambMoments(segments.data(), static_cast<int64_t>(segments.size()),
                                       parameters, to, cuda_stream);
      });
}

absl::Status OneBitLambTrusts(absl::Span<const LambTensor> tensors, const LambOptions& options,
                              const OneBitLambConstants& constants,
                              absl::Span<const OneBitLambSums> sums,
                              absl::Span<OneBitLambNumbers> numbers, absl::Span<float> trusts,
                              device::Stream& stream) {
  constexpr char kName[] = "one_bit_lamb_trusts";
  BRIGADE_RETURN_IF_ERROR(Validate(options, kName));
  BRIGADE_RETURN_IF_ERROR(
      CheckTensors(kName, tensors, options.groups.size(), sums.size(), numbers.size()));
  if (trusts.size() < tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat(kName, ": trusts has ", trusts.size(),
                                                   " elements, the list needs ", tensors.size()));
  }
  ListArguments arguments(kName, {}, stream);
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "sums", sums));
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "numbers", numbers));
  BRIGADE_RETURN_IF_ERROR(AddSpan(arguments, "trusts", trusts));
  BRIGADE_RETURN_IF_ERROR(AddStep(kName, options.state, options.group_steps, options.one_step,
                                  options.groups.size(), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const LambParameters parameters = MakeLambParameters(options);
  const OneBitLambSums* const tiles = sums.data();
  OneBitLambNumbers* const to = numbers.data();
  float* const ratios = trusts.data();
  return EnqueueLambTensors(
      {kName, arguments.accesses()}, tensors, stream,
      [parameters, constants, tiles, to, ratios](absl::Span<const LambTensor> list) {
        if (SkipsStep(parameters)) return;
        for (size_t i = 0; i < list.size(); ++i) {
          const LambTensor& tensor = list[i];
          const OneBitLambSums of = OneBitLambSumsOf(tensor, tiles);
          const float decay = parameters.groups[tensor.group].weight_decay;
          to[i].factor = OneBitLambFactor(constants, decay, of, to[i].factor);
          ratios[i] = precision::Mul(to[i].ratio, to[i].factor);
        }
      },
      [&](auto cuda_stream) {
        return LaunchOneBitLambTrusts(tensors.data(), static_cast<int64_t>(tensors.size()),
                                      parameters, constants, tiles, to, ratios, cuda_stream);
      });
}

}  // namespace brigade::kernels
