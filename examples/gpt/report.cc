#include "brigade/examples/gpt/report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/counted.h"
#include "brigade/device/printable.h"
#include "brigade/examples/gpt/pipeline_report.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/profile/flops.h"
#include "brigade/recompute/policy.h"
#include "brigade/replicas/options.h"
#include "brigade/train/observers/loss_curve.h"
#include "brigade/zero/plan/memory_model.h"

namespace brigade::gpt {
namespace {

using device::Purpose;

constexpr double kMega = 1e6;

std::string OptimizerName(const zero::ZeroOptions& options) {
  switch (options.optimizer.kind) {
    case optim::OptimizerKind::kAdamW:
      return "AdamW";
    case optim::OptimizerKind::kAdam:
      return "Adam";
    case optim::OptimizerKind::kSgd:
      return "SGD";
    case optim::OptimizerKind::kLion:
      return "Lion";
    case optim::OptimizerKind::kMuon:
      return "Muon";
    case optim::OptimizerKind::kAdafactor:
      return "Adafactor";
    case optim::OptimizerKind::kOneBitAdam:
    case optim::OptimizerKind::kOneBitLamb:
    case optim::OptimizerKind::kZeroOneAdam:
      return optim::ExchangingName(options.optimizer.kind);
    case optim::OptimizerKind::kAdamW8:
      return "AdamW8bit";
    case optim::OptimizerKind::kAdam8:
      return "Adam8bit";
    case optim::OptimizerKind::kLamb:
      break;
  }
  return "LAMB";
}

std::string TimeTable(absl::Span<const train::RankSummary> ranks) {
  std::string text = absl::StrFormat(
      "\nTime of the steps, in seconds. gemm has attention and the conversions of 16-bit types,\n"
      "communication the waiting for other ranks; hidden communication ran beside what the other\n"
      "columns count.\n"
      "%8s %10s %10s %10s %10s %10s %10s | %10s\n",
      "rank", "gemm", "other", "optimizer", "exposed", "idle", "all", "hidden");
  const auto line = [&](const std::string& name, const train::Seconds& time, double unit,
                        const char* format) {
    absl::StrAppend(&text, absl::StrFormat("%8s", name));
    for (const double part : {time.gemm, time.other_compute, time.optimizer,
                              time.exposed_communication, time.idle, time.wall()}) {
      absl::StrAppend(&text, " ",
                      absl::StrFormat("%10s", absl::StrFormat("%.1f%s", part / unit, format)));
    }
    absl::StrAppend(
        &text, " | ",
        absl::StrFormat("%10s",
                        absl::StrFormat("%.1f%s", time.hidden_communication / unit, format)),
        "\n");
  };
  train::Seconds sum;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const train::Seconds& time = ranks[r].time;
    line(absl::StrCat(r), time, 1, "");
    sum += time;
  }
  line("share", sum, sum.wall() / 100, " %");
  const double communication = sum.exposed_communication + sum.hidden_communication;
  if (communication > 0) {
    absl::StrAppend(&text, absl::StrFormat("Hidden behind compute: %.0f %% of all communication\n",
                                           100 * sum.hidden_communication / communication));
  }
  train::PassSeconds passes;
  for (const train::RankSummary& rank : ranks) passes += rank.passes;
  absl::StrAppend(&text, absl::StrFormat("Passes, of all ranks: %.3f s forward, %.3f s backward\n",
                                         passes[train::PassPart::kForward], passes.backward()));
  if (sum.dropped > 0) {
    absl::StrAppend(&text, sum.dropped, " operations were not recorded, and count as idle.\n");
  }
  return text;
}

// The whole training's utilization, where a step was profiled.
std::string UtilizationReport(const Job& job, absl::Span<const train::RankSummary> ranks) {
  const train::RankSummary& first = ranks[0];
  if (!job.config.profiler.enabled) return "";
  if (first.hardware_over_model == 0) {
    return absl::StrCat("\nNo step was profiled: step ", job.config.profiler.profile_step,
                        " was not made\n");
  }
  double peak = 0;
  for (const train::RankSummary& rank : ranks) peak += rank.peak_flops_per_second;
  if (peak == 0) return "\nModel flops utilization: not known without the peak of products\n";
  const double tokens =
      static_cast<double>(first.steps * job.config.batch.train_batch_size * job.model.context);
  const double rate = FlopsPerToken(job.model) * tokens / std::max(first.time.wall(), 1e-9);
  const double mfu = profile::Utilization(rate, static_cast<int>(ranks.size()),
                                          peak / static_cast<double>(ranks.size()));
  return absl::StrFormat(
      "\nModel flops utilization of all steps: MFU %.1f %%, HFU %.1f %%, of %.2f Gflop/s that a "
      "rank could make\n",
      100 * mfu, 100 * mfu * first.hardware_over_model,
      1e-9 * peak / static_cast<double>(ranks.size()));
}

// The ranks of a replica, of those the ranks that share a state, and the groups that have one each.
int ReplicaRanks(const Job& job) {
  return job.config.grid.data * job.config.grid.context / std::max(job.config.replicas, 1);
}
int ShardRanks(const Job& job) {
  const int shard_ranks = job.config.zero.shard_ranks;
  return shard_ranks == 0 ? ReplicaRanks(job) : shard_ranks;
}
int ShardGroups(const Job& job) { return ReplicaRanks(job) / ShardRanks(job); }

using Bytes = int64_t[device::kPurposes];

// What the ranks have of a tier, and what the model says.
std::string MemoryOfTier(const char* title, absl::Span<const train::RankSummary> ranks,
                         Bytes train::RankSummary::*measured, Bytes train::RankSummary::*model) {
  std::string text = absl::StrCat("\n", title, " at its peak, in MB (10^6 bytes)\n    rank");
  for (int p = 0; p < device::kPurposes; ++p) {
    absl::StrAppend(
        &text, absl::StrFormat(" %15s", std::string(device::ToString(static_cast<Purpose>(p)))));
  }
  absl::StrAppend(&text, absl::StrFormat(" %10s\n", "all"));
  const auto line = [&](const std::string& name, const Bytes& bytes) {
    absl::StrAppend(&text, absl::StrFormat("%8s", name));
    int64_t sum = 0;
    for (const int64_t each : bytes) {
      absl::StrAppend(&text, absl::StrFormat(" %15.3f", static_cast<double>(each) / kMega));
      sum += each;
    }
    absl::StrAppend(&text, absl::StrFormat(" %10.3f\n", static_cast<double>(sum) / kMega));
  };
  for (size_t r = 0; r < ranks.size(); ++r) line(absl::StrCat(r), ranks[r].*measured);
  // Stages of a pipeline differ.
  const bool alike = std::all_of(ranks.begin(), ranks.end(), [&](const train::RankSummary& each) {
    return std::equal(std::begin(each.*model), std::end(each.*model), std::begin(ranks[0].*model));
  });
  for (size_t r = 0; r < (alike ? 1 : ranks.size()); ++r) {
    line(alike ? "model" : absl::StrCat("model ", r), ranks[r].*model);
  }
  return text;
}

std::string MemoryTable(const Job& job, absl::Span<const train::RankSummary> ranks) {
  std::string text =
      MemoryOfTier("Memory", ranks, &train::RankSummary::memory, &train::RankSummary::memory_model);
  const zero::ZeroOptions& options = job.config.zero;
  if (precision::SizeOf(options.dtype) == 2 && optim::IsAdam(options.optimizer.kind)) {
    constexpr const char* kFormulas[] = {"16 Y", "4 Y + 12 Y / N", "2 Y + 14 Y / N", "16 Y / N"};
    // Of rank 0's part of the model.
    const auto parameters = static_cast<double>(ranks[0].parameters);
    absl::StrAppend(
        &text,
        absl::StrFormat("The ZeRO paper's terms for stage %d, %s: %.3f MB\n", options.stage,
                        kFormulas[options.stage],
                        zero::PaperBytes(parameters, ShardRanks(job), options.stage) / kMega));
  }
  return text;
}

// What lies on the host, and moves to it and back.
std::string OffloadReport(const Job& job, absl::Span<const train::RankSummary> ranks) {
  if (!job.config.zero.offload.enabled()) return "";
  std::string text = MemoryOfTier("The host's memory", ranks, &train::RankSummary::host_memory,
                                  &train::RankSummary::host_memory_model);
  const bool has_file = job.config.zero.offload.file_state();
  absl::StrAppend(&text, absl::StrFormat("\nMoved in each step, in MB\n%8s %12s %12s", "rank",
                                         "to the host", "from there"));
  if (has_file) {
    absl::StrAppend(&text, absl::StrFormat(" %14s %14s", "from the file", "to the file"));
  }
  absl::StrAppend(&text, "\n");
  const auto line = [&](const std::string& name, const zero::Movement& moved, int64_t steps) {
    const double unit = kMega * static_cast<double>(std::max<int64_t>(steps, 1));
    absl::StrAppend(
        &text, absl::StrFormat("%8s %12.6f %12.6f", name, static_cast<double>(moved.to_host) / unit,
                               static_cast<double>(moved.from_host) / unit));
    if (has_file) {
      absl::StrAppend(&text,
                      absl::StrFormat(" %14.6f %14.6f", static_cast<double>(moved.file_read) / unit,
                                      static_cast<double>(moved.file_written) / unit));
    }
    absl::StrAppend(&text, "\n");
  };
  for (size_t r = 0; r < ranks.size(); ++r) {
    line(absl::StrCat(r), ranks[r].movement, ranks[r].steps);
  }
  line("formula", ranks[0].movement_of_step, 1);
  if (has_file) {
    absl::StrAppend(&text,
                    absl::StrFormat("Each rank's file has %.3f MB of the disk, by the model %.3f\n",
                                    static_cast<double>(ranks[0].file_bytes) / kMega,
                                    static_cast<double>(ranks[0].file_bytes_model) / kMega));
  }
  if (job.config.zero.offload.delay_update) {
    absl::StrAppend(&text, "Updates are delayed: from step ",
                    job.config.zero.offload.delay_warm_up + 2,
                    " on passes use weights that lack the last step's update.\n");
  }
  return text;
}

std::string TrafficTable(const Job& job, absl::Span<const train::RankSummary> ranks) {
  const bool one_size = std::all_of(
      ranks.begin(), ranks.end(),
      [&](const train::RankSummary& each) { return each.padded_bytes == ranks[0].padded_bytes; });
  const auto padded_of = [](const train::RankSummary& rank) {
    return static_cast<double>(rank.padded_bytes);
  };
  const int groups = ShardGroups(job);
  const bool has_near = job.config.zero.hpz_ranks > 0;
  const bool has_nodes = job.config.zero.node_ranks > 0;
  std::string text = absl::StrFormat(
      "\nSent in each step, in MB; Y is %s of weights with padding\n"
      "%8s %12s %12s %12s %14s%s%s%s\n",
      one_size ? absl::StrFormat("%.3f MB", padded_of(ranks[0]) / kMega) : "a rank's part", "rank",
      "gradients", "weights", "scalars", "in units of Y", groups > 1 ? " between groups" : "",
      has_near ? "     near ranks" : "", has_nodes ? "  between nodes" : "");
  const auto line = [&](const std::string& name, const zero::Traffic& sent, int64_t steps,
                        double padded) {
    const double unit = kMega * static_cast<double>(std::max<int64_t>(steps, 1));
    const auto payload = static_cast<double>(sent.gradients + sent.parameters);
    absl::StrAppend(&text, absl::StrFormat("%8s %12.6f %12.6f %12.6f %14.6f", name,
                                           static_cast<double>(sent.gradients) / unit,
                                           static_cast<double>(sent.parameters) / unit,
                                           static_cast<double>(sent.scalars) / unit,
                                           payload / (unit / kMega) / padded));
    if (groups > 1) {
      absl::StrAppend(&text, absl::StrFormat(" %14.6f", static_cast<double>(sent.between) / unit));
    }
    if (has_near) {
      absl::StrAppend(&text, absl::StrFormat(" %14.6f", static_cast<double>(sent.near) / unit));
    }
    if (has_nodes) {
      absl::StrAppend(&text, absl::StrFormat(" %14.6f", static_cast<double>(sent.nodes) / unit));
    }
    absl::StrAppend(&text, "\n");
  };
  for (size_t r = 0; r < ranks.size(); ++r) {
    line(absl::StrCat(r), ranks[r].traffic, ranks[r].steps, padded_of(ranks[r]));
  }
  // Ranks send different amounts where the algorithm says so, or their stages differ.
  const bool alike =
      one_size && std::all_of(ranks.begin(), ranks.end(), [&](const train::RankSummary& each) {
        return each.traffic_of_step.total() == ranks[0].traffic_of_step.total();
      });
  for (size_t r = 0; r < (alike ? 1 : ranks.size()); ++r) {
    line(alike ? "formula" : absl::StrCat("formula ", r), ranks[r].traffic_of_step, 1,
         padded_of(ranks[r]));
  }
  const auto count = static_cast<double>(ShardRanks(job));
  const int times = job.config.zero.stage < 3 ? 2 : 3;
  absl::StrAppend(
      &text,
      absl::StrFormat("%d (N-1)/N Y is %.6f Y; tied weights and several micro-batches add to it.\n"
                      "Not counted: 8 bytes a step, for the mean loss and the wish to stop.\n",
                      times, times * (count - 1) / count));
  if (has_near) {
    absl::StrAppend(&text, "Of the weights those of backward passes come from the ",
                    job.config.zero.hpz_ranks, " near ranks.\n");
  }
  if (groups > 1) {
    absl::StrAppend(&text, groups, " groups of N = ", ShardRanks(job),
                    " ranks have a whole state each; between them gradients go once a step.\n");
  }
  return text;
}

// What replicas send each other, and what it would be without them.
std::string ReplicaReport(const Job& job, absl::Span<const train::RankSummary> ranks) {
  if (job.config.replicas == 0) return "";
  const replicas::OuterOptions& outer = job.config.outer;
  std::string text =
      absl::StrCat("\n", device::Counted(job.config.replicas, "replica"), " of ",
                   device::Counted(ReplicaRanks(job), "rank"), ", ", replicas::Describe(outer),
                   ": ", device::Counted(ranks[0].rounds, "round"),
                   "\nSent in all steps, in MB\n    rank     between      inside\n");
  const auto line = [&](const std::string& name, int64_t between, int64_t inside) {
    absl::StrAppend(
        &text, absl::StrFormat("%8s %11.6f %11.6f\n", name, static_cast<double>(between) / kMega,
                               static_cast<double>(inside) / kMega));
  };
  for (size_t r = 0; r < ranks.size(); ++r) {
    line(absl::StrCat(r), ranks[r].rounds_sent, ranks[r].rounds_gathered);
  }
  line("formula", ranks[0].rounds_sent_model, ranks[0].rounds_gathered_model);
  return text +
         "Inside a replica rounds gather weights once more. Losses between rounds are those of a "
         "replica.\n";
}

// What ranks of a grid send in each of its groups.
std::string GroupTable(const Job& job, absl::Span<const train::RankSummary> ranks) {
  const parallel::GridShape& grid = job.config.grid;
  if (grid.data == grid.ranks()) return "";
  std::vector<size_t> groups;
  for (size_t g = 0; g < ranks[0].sent.size(); ++g) {
    if (ranks[0].sent_of_step[g] > 0) groups.push_back(g);
  }
  std::string text = absl::StrCat("\nSent in each step in the groups of the grid, in MB\n    rank");
  for (const size_t g : groups) {
    absl::StrAppend(
        &text, absl::StrFormat(" %12s", std::string(parallel::Name(parallel::kGridGroups[g]))));
  }
  const auto line = [&](const std::string& name, const train::GroupBytes& sent, int64_t steps) {
    const double unit = kMega * static_cast<double>(std::max<int64_t>(steps, 1));
    absl::StrAppend(&text, absl::StrFormat("\n%8s", name));
    for (const size_t g : groups) {
      absl::StrAppend(&text, absl::StrFormat(" %12.6f", static_cast<double>(sent[g]) / unit));
    }
  };
  for (size_t r = 0; r < ranks.size(); ++r) line(absl::StrCat(r), ranks[r].sent, ranks[r].steps);
  line("formula", ranks[0].sent_of_step, 1);
  return text +
         "\nOf rank 0, that formula. A group's calls are in the first column of those that have "
         "its\n"
         "ranks: replica is ZeRO's, of data and context ranks.\n";
}

// What the plan of recomputation saves, and costs.
std::string RecomputationReport(const Job& job, absl::Span<const train::RankSummary> ranks) {
  if (job.config.recompute == recompute::Policy()) return "";
  const train::RankSummary& first = ranks[0];
  const auto kept = static_cast<double>(first.activations.bytes);
  const auto all = static_cast<double>(first.activations.bytes_without);
  const bool is_measured = job.config.recompute_times == train::RecomputeTimes::kMeasured;
  train::PassSeconds passes;
  for (const train::RankSummary& rank : ranks) passes += rank.passes;
  std::string text = absl::StrFormat(
      "\nRecomputation, %s: a pass has %.3f MB of activations instead of %.3f MB, for %.1f %% more "
      "%s\n"
      "%.3f MB are made again; that took %.3f s on all ranks, %.1f %% of the passes' time without "
      "it\n",
      recompute::ToString(job.config.recompute), kept / kMega, all / kMega,
      100 * (first.activations.time / first.activations.time_without - 1),
      is_measured ? "time by the trial" : "operations", (all - kept) / kMega, passes.recompute(),
      100 * passes.recompute() / std::max(passes.once(), 1e-9));
  if (job.config.recompute.stash == recompute::StashTier::kNone) return text;
  const auto mega = [](int64_t bytes, int64_t steps) {
    return static_cast<double>(bytes) / (kMega * static_cast<double>(std::max<int64_t>(steps, 1)));
  };
  const bool in_file = job.config.recompute.stash == recompute::StashTier::kFile;
  const recompute::StashMovement &moved = first.stashed, &of_step = first.stashed_of_step;
  absl::StrAppend(
      &text,
      absl::StrFormat("Stashed %s %.3f MB: %.3f MB written and %.3f MB read back in each step; by "
                      "the plan %.3f MB\n",
                      in_file ? "in a file, by way of the host's" : "on the host, in",
                      mega(first.host_memory[static_cast<int>(Purpose::kActivations)], 1),
                      mega(in_file ? moved.file_written : moved.to_host, first.steps),
                      mega(in_file ? moved.file_read : moved.from_host, first.steps),
                      mega(in_file ? of_step.file_written : of_step.to_host, 1)));
  return text;
}

// How long saving took, and held the training up.
std::string SavesReport(const Job& job, absl::Span<const train::RankSummary> ranks) {
  if (job.checkpoints.save.empty()) return "";
  const train::RankSummary& first = ranks[0];
  double held_up = 0;
  for (const train::RankSummary& each : ranks) held_up = std::max(held_up, each.held_up_seconds);
  std::string text = absl::StrFormat("\nSaved %s to %s", device::Counted(first.saves, "checkpoint"),
                                     device::Printable(job.checkpoints.save, 200));
  if (first.saves > 0) {
    absl::StrAppend(&text, absl::StrFormat(", %.3f MB in %.3f s each",
                                           static_cast<double>(first.saved_bytes) / kMega,
                                           first.save_seconds / static_cast<double>(first.saves)));
  }
  if (first.failed_saves > 0) absl::StrAppend(&text, "; ", first.failed_saves, " failed");
  absl::StrAppend(&text, absl::StrFormat("\nThe steps were held up for %.3f s (%.2f %% of their "
                                         "time); the last save took %.3f s\n",
                                         held_up, 100 * held_up / std::max(first.time.wall(), 1e-9),
                                         first.last_save_seconds));
  return text;
}

}  // namespace

std::string DescribeJob(const Job& job, const std::string& ranks) {
  const zero::ZeroOptions& options = job.config.zero;
  const std::string name(precision::ShortName(options.dtype));
  const std::string scale = options.loss_scaler.dynamic() ? " with dynamic loss scale" : "";
  const std::string dropout =
      job.config.dropout > 0 ? absl::StrCat(", dropout ", job.config.dropout) : "";
  const parallel::GridShape& grid = job.config.grid;
  const std::string pipeline =
      grid.pipeline == 1 ? ""
                         : absl::StrCat(" x pipeline ", grid.pipeline, " (",
                                        parallel::ToString(job.config.schedule), ", parts by ",
                                        parallel::ToString(job.config.partition), ")");
  const std::string shares =
      grid.data == grid.ranks() && job.model.tensor_shards == 1
          ? ""
          : absl::StrCat(" as tensor ", grid.tensor, " x context ", grid.context,
                         ShapeOf(job).is_ring() ? " (ring)" : "", " x data ", grid.data, pipeline,
                         ", ", device::Counted(job.model.tensor_shards, "tensor shard"),
                         job.model.sequence_parallel ? ", sequence parallel" : "",
                         job.model.tensor_pieces == 1
                             ? ""
                             : absl::StrCat(", products in ", job.model.tensor_pieces, " pieces"),
                         job.config.tensor_overlap ? ", which are exchanged beside others" : "");
  return absl::StrFormat(
      "GPT of %s, width %d, %s, context %d: %d parameters\n"
      "%s%s, ZeRO stage %d%s, %s%s, %s%s; %s of %s (%s of %d on each rank)\n"
      "Text: %s\n",
      device::Counted(job.model.layers, "layer"), job.model.width,
      device::Counted(job.model.heads, "head"), job.model.context, ParameterCount(job.model), ranks,
      shares, options.stage,
      ShardGroups(job) == 1 ? "" : absl::StrCat(" in ", device::Counted(ShardGroups(job), "group")),
      name, scale, OptimizerName(options), dropout, device::Counted(job.steps, "step"),
      device::Counted(job.config.batch.train_batch_size, "text"),
      device::Counted(job.config.batch.gradient_accumulation_steps, "micro-batch"),
      job.config.batch.train_micro_batch_size_per_gpu, job.corpus.description);
}

std::string ProgressReport(const Job& job, const NgramLosses& ngrams,
                           absl::Span<const train::StepMetrics> steps,
                           absl::Span<const train::Evaluation> evaluations) {
  if (steps.empty()) return "\nReport: no step was finished.\n";
  const train::StepMetrics& last = steps.back();
  const auto skipped = std::count_if(steps.begin(), steps.end(),
                                     [](const train::StepMetrics& step) { return step.skipped; });
  const double tokens = static_cast<double>(static_cast<int64_t>(steps.size()) *
                                            job.config.batch.train_batch_size * job.model.context);
  const std::string resumed =
      steps.front().step > 1 ? absl::StrCat(" from step ", steps.front().step, " on") : "";
  std::string text = absl::StrFormat(
      "\nReport: %d of %d steps%s in %.1f s (%d skipped for overflow), %.0f bytes/s, "
      "%.2f Gflop/s\n"
      "Training loss: %.4f at the first step, %.4f at the last; loss scale %g\n",
      last.step, job.steps, resumed, last.seconds, skipped, tokens / last.seconds,
      1e-9 * FlopsPerToken(job.model) * tokens / last.seconds, steps.front().loss, last.loss,
      last.loss_scale);
  if (!evaluations.empty()) {
    absl::StrAppend(
        &text, absl::StrFormat("Held out: %.4f nats per byte after %d steps; a bigram model %.4f, "
                               "a trigram model %.4f\n",
                               evaluations.back().held_out_loss, evaluations.back().step,
                               ngrams.bigram, ngrams.trigram));
  }
  return text + "\n" + train::LossCurve(steps, evaluations);
}

std::string ResourceReport(const Job& job, absl::Span<const train::RankSummary> ranks) {
  return TimeTable(ranks) + UtilizationReport(job, ranks) + MemoryTable(job, ranks) +
         OffloadReport(job, ranks) + TrafficTable(job, ranks) + ReplicaReport(job, ranks) +
         GroupTable(job, ranks) + PipelineReport(job, ranks) + RecomputationReport(job, ranks) +
         SavesReport(job, ranks);
}

}  // namespace brigade::gpt
