#include "brigade/parallel/plan/published.h"

#include <utility>

#include "brigade/device/status_macros.h"

namespace brigade::parallel {
namespace {

constexpr char kA100[] = "dgx_a100", kH100[] = "hgx_h100", kV100[] = "dgx2h_v100";

std::vector<ScheduleChoice> OneForwardOneBackward(int most_chunks) {
  std::vector<ScheduleChoice> schedules = {{ScheduleKind::kOneForwardOneBackward, 1}};
  for (int chunks = 2; chunks <= most_chunks; ++chunks) {
    schedules.push_back({ScheduleKind::kInterleaved, chunks});
  }
  return schedules;
}

// Megatron on A100: attention in single operations, gradients reduced after the passes.
PublishedRun OnA100(std::string source, std::string model, int ranks, int tensor, int pipeline,
                    int64_t batch) {
  PublishedRun run;
  run.source = std::move(source);
  run.model = std::move(model);
  run.machine = kA100;
  run.execution.batch = batch;
  run.execution.fused_attention = false;
  run.execution.overlap_data = false;
  run.space.ranks = ranks;
  run.space.tensor = tensor;
  run.space.context = 1;
  run.space.pipeline = pipeline;
  run.space.zero_stage = 0;
  run.space.memory_bytes = 76e9;
  return run;
}

// arXiv 2104.04473, table 1. Everything is recomputed; the chunks and the micro-batch are not
// published.
PublishedRun Table1(std::string model, int tensor, int pipeline, int ranks, int64_t batch,
                    double teraflops, bool is_checked = false) {
  PublishedRun run = OnA100("2104.04473 table 1", std::move(model), ranks, tensor, pipeline, batch);
  run.execution.sequence_parallel = false;
  run.space.recomputation = Recomputation::kFull;
  run.space.schedules = OneForwardOneBackward(8);
  run.teraflops = teraflops;
  run.counts_recomputation = true;
  run.is_checked = is_checked;
  return run;
}

// arXiv 2205.05198, tables 3 and 5: without sequence parallelism and with all recomputed, or with
// it and selective recomputation. `mfu` is of 312 TFLOP/s.
PublishedRun Table5(std::string model, int ranks, int pipeline, int chunks, int64_t batch,
                    int micro_batch, bool selective, double mfu, bool is_checked = false) {
  PublishedRun run = OnA100("2205.05198 table 5", std::move(model), ranks, 8, pipeline, batch);
  run.execution.sequence_parallel = selective;
  run.space.micro_batch = micro_batch;
  run.space.recomputation = selective ? Recomputation::kSelective : Recomputation::kFull;
  run.space.schedules = {chunks == 1 ? ScheduleChoice{}
                                     : ScheduleChoice{ScheduleKind::kInterleaved, chunks}};
  run.teraflops = mfu / 100 * 312;
  run.is_checked = is_checked;
  return run;
}

// Megatron-LM's README: GPT-3 on 96 to 4608 H100 with one batch; the grid is not published.
PublishedRun Gpt3OnH100(int ranks, double mfu) {
  PublishedRun run;
  run.source = "Megatron-LM README";
  run.model = "gpt-175b";
  run.machine = kH100;
  run.execution.batch = 1152;
  run.space.ranks = ranks;
  run.space.context = 1;
  run.space.zero_stage = 1;
  run.space.shard_ranks = 0;
  run.space.schedules = OneForwardOneBackward(12);
  run.space.memory_bytes = 76e9;
  run.teraflops = mfu / 100 * 989;
  run.is_checked = true;
  return run;
}

// arXiv 2407.21783, table 4: t 8, p 16. Nothing is recomputed; the chunks are not published.
PublishedRun Llama(int ranks, double teraflops) {
  PublishedRun run;
  run.source = "2407.21783 table 4";
  run.model = "llama-405b";
  run.machine = kH100;
  run.execution.batch = 2048;
  run.space.ranks = ranks;
  run.space.tensor = 8;
  run.space.context = 1;
  run.space.pipeline = 16;
  run.space.zero_stage = 1;
  run.space.shard_ranks = 0;
  run.space.recomputation = Recomputation::kNone;
  run.space.micro_batch = 1;
  run.space.schedules = OneForwardOneBackward(8);
  run.teraflops = teraflops;
  return run;
}

// arXiv 1909.08053, section 5: groups of tensor ranks with 8 texts each, all recomputed.
PublishedRun Megatron2019(std::string model, int ranks, int tensor, double teraflops) {
  PublishedRun run =
      OnA100("1909.08053", std::move(model), ranks, tensor, 1, int64_t{8} * ranks / tensor);
  run.machine = kV100;
  run.execution.sequence_parallel = false;
  run.space.recomputation = Recomputation::kFull;
  run.space.micro_batch = 8;
  run.space.memory_bytes = 28e9;
  run.teraflops = teraflops;
  run.counts_recomputation = true;
  run.is_checked = true;
  return run;
}

PublishedRun Fitted(PublishedRun run) {
  run.is_fitted = true;
  return run;
}

}  // namespace

const std::vector<PublishedRun>& PublishedRuns() {
  static const std::vector<PublishedRun>* const runs = [] {
    constexpr bool kSelective = true, kChecked = true;
    auto* const all = new std::vector<PublishedRun>{
        Fitted(Megatron2019("gpt-1.2b", 1, 1, 39)),
        Megatron2019("gpt-8.3b", 512, 8, 15.1e3 / 512),
        Fitted(Table1("gpt-1.7b", 1, 1, 32, 512, 137)),
        Table1("gpt-3.6b", 2, 1, 64, 512, 138),
        Table1("gpt-7.5b", 4, 1, 128, 512, 142),
        Table1("gpt-18b", 8, 1, 256, 1024, 135),
        Table1("gpt-39b", 8, 2, 512, 1536, 138),
        Table1("gpt-76b", 8, 4, 1024, 1792, 140),
        Table1("gpt-145b", 8, 8, 1536, 2304, 148),
        Table1("gpt-310b", 8, 16, 1920, 2160, 155),
        Table1("gpt-530b", 8, 35, 2520, 2520, 163),
        Table1("gpt-1t", 8, 64, 3072, 3072, 163, kChecked),
        Table5("gpt-22b", 8, 1, 1, 4, 4, kSelective, 41.5),
        Table5("gpt-175b", 64, 8, 3, 64, 1, kSelective, 51.4),
        Table5("gpt-530b", 280, 35, 3, 280, 1, kSelective, 56.0),
        Table5("gpt-1t", 512, 64, 1, 512, 1, kSelective, 56.3),
        Table5("gpt-530b", 2240, 35, 3, 2240, 1, !kSelective, 42.1, kChecked),
        Table5("gpt-530b", 2240, 35, 3, 2240, 1, kSelective, 54.2, kChecked),
        Fitted(Gpt3OnH100(96, 47)),
        Gpt3OnH100(4608, 42),
        Llama(8192, 430),
        Llama(16384, 400),
    };
    return all;
  }();
  return *runs;
}

absl::StatusOr<PublishedPrediction> Predict(const PublishedRun& run, const Machine& machine) {
  BRIGADE_ASSIGN_OR_RETURN(const Transformer model, TransformerByName(run.model));
  BRIGADE_ASSIGN_OR_RETURN(auto result, Search(model, machine, run.execution, run.space));
  PublishedPrediction prediction;
  prediction.candidate = result.candidates.front();
  const double flops = ModelFlops(model, static_cast<double>(run.execution.batch),
                                  run.counts_recomputation, /*is_causal=*/false);
  prediction.teraflops = flops / prediction.candidate.time.total() / run.space.ranks / 1e12;
  prediction.error_percent = 100 * (prediction.teraflops - run.teraflops) / run.teraflops;
  return prediction;
}

absl::Span<const PublishedTensorEfficiency> TensorEfficiencies() {
  static const auto* const points = new std::vector<PublishedTensorEfficiency>{
      {"gpt-1.2b", 1, 100}, {"gpt-2.5b", 2, 95}, {"gpt-4.2b", 4, 82}, {"gpt-8.3b", 8, 77}};
  return *points;
}

absl::StatusOr<std::vector<double>> PredictTensorEfficiencies(const Machine& machine) {
  std::vector<double> speeds;
  for (const PublishedTensorEfficiency& point : TensorEfficiencies()) {
    const PublishedRun run = Megatron2019(point.model, point.tensor, point.tensor, 1);
    BRIGADE_ASSIGN_OR_RETURN(const auto prediction, Predict(run, machine));
    speeds.push_back(prediction.teraflops);
  }
  std::vector<double> percents;
  for (const double speed : speeds) percents.push_back(100 * speed / speeds.front());
  return percents;
}

absl::Span<const ScalingPoint> ScalingPoints() {
  static const auto* const points = new std::vector<ScalingPoint>{
      {8, "gpt-7.5b", 512},     {64, "gpt-39b", 512},     {512, "gpt-145b", 1024},
      {1024, "gpt-175b", 2048}, {4096, "gpt-530b", 4096}, {16384, "gpt-1t", 8192}};
  return *points;
}

}  // namespace brigade::parallel
