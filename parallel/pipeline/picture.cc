#include "brigade/parallel/pipeline/picture.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace brigade::parallel {
namespace {

// In pixels.
constexpr double kWidth = 960, kLeft = 64, kRight = 16, kTop = 44;
constexpr double kRow = 34, kBox = 26;
constexpr double kLegend = 78;
// Narrower ones have no number.
constexpr double kWidthOfADigit = 7;

struct Color {
  int red, green, blue;
};

// Of the first chunk and of the last one.
struct Shades {
  Color light, dark;
};

Shades ShadesOf(ItemKind kind) {
  switch (kind) {
    case ItemKind::kForward:
      return {{158, 202, 225}, {33, 113, 181}};
    case ItemKind::kBackwardWeight:
      return {{186, 220, 160}, {49, 138, 74}};
    default:
      return {{253, 190, 133}, {217, 90, 20}};
  }
}

class Picture {
 public:
  Picture(const PipelineSchedule& schedule, const Simulation& simulation)
      : schedule_(schedule),
        simulation_(simulation),
        rows_(static_cast<double>(schedule.lists.size())),
        scale_(simulation.makespan > 0 ? (kWidth - kLeft - kRight) / simulation.makespan : 1) {}

  std::string Draw() && {
    const double height = kTop + rows_ * kRow + kLegend;
    absl::StrAppendFormat(
        &svg_,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g "
        "%g\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        kWidth, height, kWidth, height);
    Title();
    for (size_t stage = 0; stage < schedule_.lists.size(); ++stage) Row(stage);
    Transfers();
    Axis();
    Legend();
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  double XOf(double time) const { return kLeft + time * scale_; }
  double YOf(size_t stage) const { return kTop + static_cast<double>(stage) * kRow; }

  void Text(double x, double y, absl::string_view anchor, absl::string_view fill,
            absl::string_view text) {
    absl::StrAppendFormat(&svg_,
                          "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n",
                          x, y, anchor, fill, text);
  }

  void Rect(double x, double y, double width, double height, const Color& color) {
    absl::StrAppendFormat(&svg_,
                          "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
                          "fill=\"#%02x%02x%02x\" stroke=\"white\"/>\n",
                          x, y, width, height, color.red, color.green, color.blue);
  }

  void Line(double x1, double y1, double x2, double y2, absl::string_view color) {
    absl::StrAppendFormat(&svg_,
                          "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\"/>\n",
                          x1, y1, x2, y2, color);
  }

  // How dark a chunk is, from 0 to 1.
  double DarknessOf(int chunk) const {
    const int chunks = schedule_.shape.schedule.chunks;
    return chunks > 1 ? static_cast<double>(chunk) / (chunks - 1) : 0;
  }

  Color ColorOf(ItemKind kind, int chunk) const {
    const auto [light, dark] = ShadesOf(kind);
    const auto mix = [&](int from, int to) {
      return static_cast<int>(std::lround(from + (to - from) * DarknessOf(chunk)));
    };
    return {mix(light.red, dark.red), mix(light.green, dark.green), mix(light.blue, dark.blue)};
  }

  void Title() {
    const auto& [schedule, stages, micro_batches] = schedule_.shape;
    const double work = *std::max_element(simulation_.work.begin(), simulation_.work.end());
    const std::string share =
        work > 0 ? absl::StrFormat(", %.1f %% of the work", 100 * simulation_.Bubble() / work) : "";
    Text(kLeft, 24, "start", "black",
         absl::StrFormat("%s, %d stages, %d micro-batches: time %.6g, bubble %.6g%s",
                         ToString(schedule), stages, micro_batches, simulation_.makespan,
                         simulation_.Bubble(), share));
  }

  void Row(size_t stage) {
    Text(kLeft - 8, YOf(stage) + 17, "end", "black", absl::StrCat("stage ", stage));
    Rect(XOf(0), YOf(stage), simulation_.makespan * scale_, kBox, kWait);
    const StageList& list = schedule_.lists[stage];
    for (size_t i = 0; i < list.size(); ++i) {
      if (!IsComputation(list[i].kind)) continue;
      const auto [begin, end] = simulation_.spans[stage][i];
      Box(XOf(begin), YOf(stage), (end - begin) * scale_, list[i].kind, list[i].chunk,
          absl::StrCat(list[i].micro_batch));
    }
  }

  void Box(double x, double y, double width, ItemKind kind, int chunk, const std::string& text) {
    Rect(x, y, width, kBox, ColorOf(kind, chunk));
    if (static_cast<double>(text.size()) * kWidthOfADigit > width) return;
    Text(x + width / 2, y + 17, "middle", DarknessOf(chunk) > 0.6 ? "white" : "black", text);
  }

  void Transfers() {
    for (size_t stage = 0; stage < schedule_.lists.size(); ++stage) {
      const StageList& list = schedule_.lists[stage];
      for (size_t i = 0; i < list.size(); ++i) {
        const auto [begin, end] = simulation_.spans[stage][i];
        if (!IsSend(list[i].kind) || begin == end) continue;
        const auto peer = PeerOf(schedule_.shape, static_cast<int>(stage), list[i]);
        const auto to = static_cast<size_t>(peer->stage);
        // From the near edge of the one row to that of the other.
        const bool down = to > stage;
        Line(XOf(begin), YOf(stage) + (down ? kBox : 0), XOf(end), YOf(to) + (down ? 0 : kBox),
             "#555555");
      }
    }
  }

  // With 5 to 12 marks, at 1, 2 or 5 times a power of ten.
  void Axis() {
    const double y = kTop + rows_ * kRow;
    Line(XOf(0), y, XOf(simulation_.makespan), y, "#888888");
    if (simulation_.makespan <= 0) return;
    double step = std::pow(10, std::floor(std::log10(simulation_.makespan)) - 1);
    for (const double factor : {2.0, 2.5, 2.0}) {
      if (simulation_.makespan / step > 12) step *= factor;
    }
    for (int mark = 0; mark * step <= simulation_.makespan; ++mark) {
      const double x = XOf(mark * step);
      Line(x, y, x, y + 5, "#888888");
      Text(x, y + 18, "middle", "black", absl::StrFormat("%.6g", mark * step));
    }
  }

  void Legend() {
    const bool splits = SplitsBackward(schedule_.shape.schedule.kind);
    const double y = kTop + rows_ * kRow + 36;
    double x = kLeft;
    const auto entry = [&](absl::string_view text) {
      Text(x + 6, y + 17, "start", "black", text);
      x += 6 + static_cast<double>(text.size()) * 6.5 + 20;
    };
    const auto boxes = [&](ItemKind kind, absl::string_view text) {
      for (int chunk = 0; chunk < std::min(schedule_.shape.schedule.chunks, 4); ++chunk) {
        Rect(x, y, kBox, kBox, ColorOf(kind, chunk));
        x += kBox;
      }
      entry(text);
    };
    boxes(ItemKind::kForward, "forward");
    boxes(ItemKind::kBackward, splits ? "gradients of inputs" : "backward");
    if (splits) boxes(ItemKind::kBackwardWeight, "gradients of weights");
    Rect(x, y, kBox, kBox, kWait);
    x += kBox;
    entry("waits");
    if (schedule_.shape.schedule.chunks > 1) entry("(darker: later chunks)");
  }

  static constexpr Color kWait = {236, 236, 236};

  const PipelineSchedule& schedule_;
  const Simulation& simulation_;
  const double rows_;
  // Pixels per time.
  const double scale_;
  std::string svg_;
};

}  // namespace

std::string DrawSvg(const PipelineSchedule& schedule, const Simulation& simulation) {
  return Picture(schedule, simulation).Draw();
}

}  // namespace brigade::parallel
