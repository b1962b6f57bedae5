#include "brigade/nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/nn/rotary_math.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::nn {
namespace {

absl::Status Check(const RotaryScaling& scaling) {
  const auto positive = [](double x) { return x > 0 && !std::isinf(x); };
  if (!positive(scaling.factor)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rotary: the scaling's factor is ", scaling.factor, "; it must be positive and finite"));
  }
  if (scaling.low_frequency_factor == 0 && scaling.high_frequency_factor == 0) {
    return absl::OkStatus();
  }
  if (!positive(scaling.low_frequency_factor) || !positive(scaling.high_frequency_factor) ||
      scaling.low_frequency_factor >= scaling.high_frequency_factor) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary: the scaling's factors of low and high frequencies are ",
                     scaling.low_frequency_factor, " and ", scaling.high_frequency_factor,
                     "; they must be positive and finite, the first one smaller"));
  }
  if (!positive(scaling.original_positions)) {
    return absl::InvalidArgumentError(absl::StrCat("rotary: the scaling's original positions are ",
                                                   scaling.original_positions,
                                                   "; they must be positive and finite"));
  }
  return absl::OkStatus();
}

absl::Status Check(const RotaryTable::Options& options) {
  if (options.positions < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary: positions is ", options.positions, "; it must be at least 1"));
  }
  if (options.head_width < 2 || options.head_width % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("rotary: head_width is ", options.head_width,
                                                   "; it must be even and at least 2"));
  }
  if (!(options.base > 0) || std::isinf(options.base)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary: base is ", options.base, "; it must be positive and finite"));
  }
  if (!options.rows.empty() && std::ssize(options.rows) != options.positions) {
    return absl::InvalidArgumentError(absl::StrCat("rotary: the positions of ", options.rows.size(),
                                                   " rows for a table of ", options.positions));
  }
  return options.scaling.has_value() ? Check(*options.scaling) : absl::OkStatus();
}

double FrequencyOf(const RotaryTable::Options& options, int64_t i) {
  const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(options.head_width);
  const double frequency = std::pow(options.base, exponent);
  if (!options.scaling.has_value()) return frequency;
  const RotaryScaling& scaling = *options.scaling;
  const double scaled = frequency / scaling.factor;
  if (scaling.high_frequency_factor == 0) return scaled;
  // Waves of the positions of the training.
  const double waves = scaling.original_positions * frequency / (2 * std::numbers::pi);
  const double share =
      std::clamp((waves - scaling.low_frequency_factor) /
                     (scaling.high_frequency_factor - scaling.low_frequency_factor),
                 0.0, 1.0);
  return (1 - share) * scaled + share * frequency;
}

template <typename W>
void FillTable(const RotaryTable::Options& options, W* table) {
  const int64_t half = options.head_width / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = FrequencyOf(options, i);
    for (int64_t row = 0; row < options.positions; ++row) {
      const int64_t position = options.rows.empty() ? row : options.rows[static_cast<size_t>(row)];
      const double angle = static_cast<double>(position) * frequency;
      table[(2 * row) * half + i] = static_cast<W>(std::cos(angle));
      table[(2 * row + 1) * half + i] = static_cast<W>(std::sin(angle));
    }
  }
}

absl::Status CheckTable(absl::string_view layer, const RotaryShape& shape, const RotaryTable& table,
                        const device::Stream& stream) {
  const RotaryTable::Options& options = table.options();
  // All types but float64 have a table of floats.
  if ((options.dtype == precision::DType::kFloat64) !=
      (shape.dtype == precision::DType::kFloat64)) {
    return absl::InvalidArgumentError(
        absl::StrCat(layer, ": the table is for ", precision::ShortName(options.dtype),
                     ", the layer's dtype is ", precision::ShortName(shape.dtype)));
  }
  if (table.memory().device() != stream.device()) {
    return absl::InvalidArgumentError(absl::StrCat(layer, ": the table is of ",
                                                   table.memory().device().ToString(),
                                                   ", the stream of ", stream.device().ToString()));
  }
  if (shape.first_position < 0 || shape.first_position > options.positions - shape.context) {
    return absl::InvalidArgumentError(
        absl::StrCat(layer, ": the table has ", options.positions, " positions; the layer's are ",
                     shape.first_position, " and the ", shape.context - 1, " behind it"));
  }
  if (shape.heads < 0 || shape.heads > shape.columns / options.head_width) {
    return absl::InvalidArgumentError(absl::StrCat(layer, ": ", shape.heads, " heads of ",
                                                   options.head_width, " do not fit a row of ",
                                                   shape.columns));
  }
  return absl::OkStatus();
}

absl::Status Turn(absl::string_view layer, const RotaryShape& shape, const RotaryTable& table,
                  int direction, void* x, device::Stream& stream) {
  return WithType(layer, shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    using W = Wide<T>;
    BRIGADE_RETURN_IF_ERROR(CheckTable(layer, shape, table, stream));
    BRIGADE_RETURN_IF_ERROR(CheckSegments(layer, shape.segments, shape.context));
    const int64_t half = table.options().head_width / 2;
    const RotaryRows<T> rows = {
        .x = Typed<T>(x),
        .table = Typed<W>(table.memory().data()),
        .context = shape.context,
        .first_position = shape.first_position,
        .heads = shape.heads,
        .half = half,
        .columns = shape.columns,
        .direction = W(direction),
        .segments = shape.segments,
    };
    // The values of all rows but the last are declared too.
    const int64_t count = shape.batch * shape.context;
    return EnqueueRows(
        {layer,
         {ReadPositions(shape.segments, shape.batch, shape.context),
          Read(rows.table + shape.first_position * 2 * half, shape.context * 2 * half),
          Write(rows.x, count == 0 ? 0 : (count - 1) * shape.columns + shape.heads * 2 * half)}},
        count, rows, stream);
  });
}

}  // namespace

absl::StatusOr<RotaryTable> RotaryTable::Create(device::Context& context, const Options& options) {
  BRIGADE_RETURN_IF_ERROR(Check(options));
  RotaryTable table;
  table.options_ = options;
  BRIGADE_RETURN_IF_ERROR(WithType("rotary", options.dtype, [&](auto tag) -> absl::Status {
    using W = Wide<decltype(tag)>;
    const int64_t bytes = Bytes(options);
    BRIGADE_ASSIGN_OR_RETURN(table.memory_, context.Allocate(bytes, device::Purpose::kScratch,
                                                             "cosines and sines of positions"));
    BRIGADE_ASSIGN_OR_RETURN(
        auto host, context.AllocateHost(bytes, device::Purpose::kScratch, "cosines and sines"));
    FillTable(options, Typed<W>(host.data()));
    BRIGADE_ASSIGN_OR_RETURN(auto stream, context.CreateStream("copy the table of positions"));
    BRIGADE_RETURN_IF_ERROR(stream->Copy(table.memory_.data(), host.data(), bytes));
    return stream->Synchronize();
  }));
  return table;
}

int64_t RotaryTable::Bytes(const Options& options) {
  const bool wide = options.dtype == precision::DType::kFloat64;
  return options.positions * options.head_width *
         static_cast<int64_t>(wide ? sizeof(double) : sizeof(float));
}

absl::Status Rotary(const RotaryShape& shape, const RotaryTable& table, void* x,
                    device::Stream& stream) {
  return Turn("rotary", shape, table, 1, x, stream);
}

absl::Status RotaryBackward(const RotaryShape& shape, const RotaryTable& table, void* dx,
                            device::Stream& stream) {
  return Turn("rotary_backward", shape, table, -1, dx, stream);
}

}  // namespace brigade::nn
