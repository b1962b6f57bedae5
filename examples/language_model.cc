// Trains or fine-tunes GPT-2 or Llama, of Hugging Face's files, on texts or on JSON lines with
// prompt and answer:
//
//   bazel run //examples:language_model -- --model=FOLDER --data=chats.jsonl --config=ds.json
//
// The folder has config.json, for training on also the weights, and perhaps tokenizer.json. With
// --lora_rank only adapters are trained, which --save_adapter writes as PEFT has them. Ctrl-C ends
// it behind the next steps with exit code 130: with the checkpoint of --save, from which --resume
// goes on, and without adapters, which are those of a whole training.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/data/chat_template.h"
#include "brigade/data/open.h"
#include "brigade/data/token_samples.h"
#include "brigade/device/all_errors.h"
#include "brigade/device/command_line.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/adapter_files.h"
#include "brigade/models/config.h"
#include "brigade/models/decoder.h"
#include "brigade/models/lora.h"
#include "brigade/models/weights.h"
#include "brigade/train/decoder_model.h"
#include "brigade/train/interrupt.h"
#include "brigade/train/process_flags.h"
#include "brigade/train/step_flags.h"
#include "brigade/train/trainer.h"
#include "brigade/train/training_flags.h"
#include "brigade/train/watch.h"
#include "brigade/train/watch_flags.h"

ABSL_FLAG(std::string, model, "", "a folder with config.json, and weights unless --new is given");
ABSL_FLAG(bool, new, false, "begins with random weights, not with those of the folder");
ABSL_FLAG(std::string, tokenizer, "",
          "\"byte\", or a tokenizer.json; empty: the folder's, or bytes where it has none");
ABSL_FLAG(int64_t, lora_rank, 0, "of low-rank adapters, which alone are trained; 0: without");
ABSL_FLAG(double, lora_alpha, 16, "adapters are scaled by alpha / rank");
ABSL_FLAG(bool, rslora, false, "adapters are scaled by alpha / sqrt(rank)");
ABSL_FLAG(double, lora_dropout, 0, "the share of an adapter's inputs that training drops");
ABSL_FLAG(std::vector<std::string>, lora_targets, {},
          "layers with adapters: names, or all-linear; empty: those of PEFT's tables");
ABSL_FLAG(bool, int8_base, false, "keeps the matrices that are not trained as int8 blocks");
ABSL_FLAG(std::string, adapter, "", "a folder of adapters to begin with; empty: new ones");
ABSL_FLAG(std::string, save_adapter, "",
          "a new folder for the adapters of the whole training, not of one that is interrupted; "
          "empty: none");
ABSL_FLAG(std::string, data, "",
          "a text, a file of JSON lines (.jsonl), or a folder of such files");
ABSL_FLAG(std::string, held_out, "", "the same, to evaluate before and after; empty: nothing");
ABSL_FLAG(int64_t, context, 128, "positions of a sample");
ABSL_FLAG(bool, pack, false, "JSON lines share samples, and none sees another");
ABSL_FLAG(bool, separate_documents, false, "of texts no file sees the one before it");
ABSL_FLAG(bool, restart_positions, true,
          "with either, positions are counted from the begin of each line or file");
ABSL_FLAG(int64_t, cutoff_len, 0, "tokens that are kept of a JSON line; 0: as many as fit");
ABSL_FLAG(int64_t, max_samples, 0, "lines, or windows of text, that are taken; 0: all");
ABSL_FLAG(std::string, chat_template, "plain",
          "plain, alpaca, chatml or llama3, or a JSON file: docs/data.md");
ABSL_FLAG(std::string, on_error, "refuse", "of bad lines and files: refuse or skip");
ABSL_FLAG(std::string, config, "", "a JSON file with DeepSpeed's keys");
ABSL_FLAG(int64_t, epochs, 1, "how often each sample is seen");
ABSL_FLAG(int64_t, steps, 0, "updates; 0: all epochs");
ABSL_FLAG(int64_t, evaluate_every, 0, "steps between evaluations; 0: at the begin and the end");
ABSL_FLAG(uint64_t, seed, 1, "of the order of samples, and of new weights");

namespace brigade {
namespace {

// What the steps in flight and the last checkpoint get after Ctrl-C, and lines of progress and
// monitors where that was not enough.
constexpr absl::Duration kInterruptedPatience = absl::Seconds(60);
constexpr absl::Duration kInterruptedWatch = absl::Milliseconds(100);
// Other ranks wait for rank 0, which reports: mpirun ends all with the first.
constexpr absl::Duration kPatienceOfOthers = absl::Milliseconds(250);

// `speaks`: tells what it has opened.
absl::StatusOr<std::shared_ptr<const data::Samples>> Open(const std::string& path,
                                                          const data::Tokenizer& tokenizer,
                                                          bool speaks) {
  data::DataOptions options = {.path = device::FromUsersFolder(path),
                               .context = absl::GetFlag(FLAGS_context),
                               .max_samples = absl::GetFlag(FLAGS_max_samples),
                               .cutoff_len = absl::GetFlag(FLAGS_cutoff_len),
                               .pack = absl::GetFlag(FLAGS_pack),
                               .chat_template = absl::GetFlag(FLAGS_chat_template),
                               .separate_documents = absl::GetFlag(FLAGS_separate_documents)};
  BRIGADE_ASSIGN_OR_RETURN(options.on_error, data::ParseOnError(absl::GetFlag(FLAGS_on_error)));
  BRIGADE_ASSIGN_OR_RETURN(data::OpenedData opened, data::OpenData(options, tokenizer));
  if (speaks) std::printf("%s\n", opened.description.c_str());
  const bool are_apart = options.pack || options.separate_documents;
  return std::make_shared<data::TokenSamples>(
      std::move(opened.dataset), are_apart ? data::Pieces::kApart : data::Pieces::kJoined);
}

// None without --lora_rank.
absl::StatusOr<std::optional<models::LoraOptions>> Lora() {
  const int64_t rank = absl::GetFlag(FLAGS_lora_rank);
  const std::string begin = absl::GetFlag(FLAGS_adapter), end = absl::GetFlag(FLAGS_save_adapter);
  if (rank == 0) {
    if (begin.empty() && end.empty() && !absl::GetFlag(FLAGS_int8_base)) return std::nullopt;
    return absl::InvalidArgumentError(
        "--adapter, --save_adapter and --int8_base are of adapters: give --lora_rank");
  }
  models::LoraOptions lora = {.rank = rank,
                              .alpha = absl::GetFlag(FLAGS_lora_alpha),
                              .dropout = absl::GetFlag(FLAGS_lora_dropout),
                              .dropout_seed = absl::GetFlag(FLAGS_seed),
                              .targets = absl::GetFlag(FLAGS_lora_targets),
                              .rank_stabilized = absl::GetFlag(FLAGS_rslora),
                              .base = absl::GetFlag(FLAGS_int8_base)
                                          ? models::BaseFormat::kInt8Blocks
                                          : models::BaseFormat::kAsModel};
  BRIGADE_RETURN_IF_ERROR(models::Validate(lora));
  return lora;
}

// `interrupted`: by Ctrl-C, before the training was at its end.
absl::Status Run(bool& interrupted) {
  BRIGADE_RETURN_IF_ERROR(data::ParseOnError(absl::GetFlag(FLAGS_on_error)).status());
  BRIGADE_RETURN_IF_ERROR(
      data::ChatTemplate::FromNameOrFile(absl::GetFlag(FLAGS_chat_template)).status());
  train::Refusals refusals;
  train::StepFlags step_flags = train::StepOfFlags(refusals);
  step_flags.steps = absl::GetFlag(FLAGS_steps);
  BRIGADE_RETURN_IF_ERROR(refusals.status());
  for (const auto& [name, value] : {std::pair("model", absl::GetFlag(FLAGS_model)),
                                    {"data", absl::GetFlag(FLAGS_data)},
                                    {"config", absl::GetFlag(FLAGS_config)}}) {
    if (value.empty()) return absl::InvalidArgumentError(absl::StrCat("--", name, " is missing"));
  }
  for (const auto& [name, value] : {std::pair("epochs", absl::GetFlag(FLAGS_epochs)),
                                    {"steps", absl::GetFlag(FLAGS_steps)},
                                    {"evaluate_every", absl::GetFlag(FLAGS_evaluate_every)}}) {
    if (value < 0) return absl::InvalidArgumentError(absl::StrCat("--", name, "=", value));
  }
  if (!absl::GetFlag(FLAGS_restart_positions) && !absl::GetFlag(FLAGS_pack) &&
      !absl::GetFlag(FLAGS_separate_documents)) {
    refusals.Add("restart_positions",
                 " is false, which is of --pack and --separate_documents: give one of them");
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto launch_info, collectives::LaunchInfoFromEnvironment());
  train::WatchOptions watch_options = train::WatchFlags(refusals);
  train::TrainerOptions options = train::ProcessFlags(launch_info.launched, refusals);
  train::Job job;
  job.checkpoints = train::CheckpointFlags(refusals);
  if (!job.checkpoints.weights.empty() && !absl::GetFlag(FLAGS_new)) {
    refusals.Add("weights", " are given, and those of --model are read: give --new");
  }
  BRIGADE_RETURN_IF_ERROR(refusals.status());
  // Before the data, which may take long to read.
  BRIGADE_ASSIGN_OR_RETURN(job.config,
                           train::ReadConfig(device::FromUsersFolder(absl::GetFlag(FLAGS_config)),
                                             launch_info.size, {}, step_flags));
  train::SetByFlags(/*is_known=*/true, job.config, refusals);
  train::CheckFiles(watch_options, job.config, refusals);
  BRIGADE_RETURN_IF_ERROR(refusals.status());
  BRIGADE_ASSIGN_OR_RETURN(const std::optional<models::LoraOptions> lora, Lora());
  const std::string folder = device::FromUsersFolder(absl::GetFlag(FLAGS_model));
  BRIGADE_ASSIGN_OR_RETURN(const models::DecoderConfig config, models::ReadConfig(folder));

  std::string tokenizer_name = absl::GetFlag(FLAGS_tokenizer);
  const std::string own = folder + "/tokenizer.json";
  std::error_code error;
  if (tokenizer_name.empty()) tokenizer_name = std::filesystem::exists(own, error) ? own : "byte";
  if (tokenizer_name != "byte") tokenizer_name = device::FromUsersFolder(tokenizer_name);
  BRIGADE_ASSIGN_OR_RETURN(const auto tokenizer, data::OpenTokenizer(tokenizer_name));
  if (tokenizer->vocabulary() > config.vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(tokenizer_name, " has ", tokenizer->vocabulary(),
                                                   " tokens, the model ", config.vocabulary));
  }
  train::TrainingData training;
  training.drop_last = job.config.drop_last;
  training.epochs = absl::GetFlag(FLAGS_epochs);
  const bool speaks = launch_info.rank == 0;
  BRIGADE_ASSIGN_OR_RETURN(training.training, Open(absl::GetFlag(FLAGS_data), *tokenizer, speaks));
  if (const std::string held_out = absl::GetFlag(FLAGS_held_out); !held_out.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(training.held_out, Open(held_out, *tokenizer, speaks));
  }

  const int64_t batch = job.config.batch.train_batch_size;
  job.steps = absl::GetFlag(FLAGS_steps);
  if (job.steps == 0) {
    BRIGADE_ASSIGN_OR_RETURN(job.steps, training.Steps(batch));
  }
  job.evaluate_every = absl::GetFlag(FLAGS_evaluate_every);
  job.seed = absl::GetFlag(FLAGS_seed);
  job.digests = train::DigestFlags(job.steps, refusals);
  BRIGADE_RETURN_IF_ERROR(refusals.status());

  watch_options.rank = launch_info.rank;
  watch_options.progress = stdout;
  watch_options.units_of_step = static_cast<double>(batch * absl::GetFlag(FLAGS_context));
  watch_options.unit = "token";
  watch_options.title = folder;
  BRIGADE_ASSIGN_OR_RETURN(const auto watch, train::Watch::Create(job, watch_options));
  if (!watch->url().empty()) std::printf("Dashboard: %s\n", watch->url().c_str());
  train::Interrupt interrupt(
      kInterruptedPatience + (speaks ? absl::ZeroDuration() : kPatienceOfOthers), [&] {
        watch->recorder().Finish().IgnoreError();
        if (!speaks) return;
        watch->Close(kInterruptedWatch);
        std::fputs(job.checkpoints.save.empty()
                       ? "\nInterrupted; a step did not end in time\n"
                       : "\nInterrupted; a step, or its checkpoint, did not end in time\n",
                   stderr);
      });
  const std::string adapter = device::FromUsersFolder(absl::GetFlag(FLAGS_save_adapter));
  const auto report = [&](const train::Outcome& outcome) {
    interrupt.Disarm();
    watch->Close(train::Watch::kPatience);
    if (!outcome.interrupted) return;
    std::fprintf(stderr, "Interrupted%s\n",
                 adapter.empty() ? "" : "; --save_adapter gets those of a whole training alone");
  };
  options.watch = watch.get();
  options.stop = &interrupt.stop();
  options.report = report;
  BRIGADE_ASSIGN_OR_RETURN(
      const auto trainer,
      train::Trainer::Create(
          job, train::DecoderModel(config, {lora, absl::GetFlag(FLAGS_restart_positions)}),
          training, launch_info, options));
  if (!absl::GetFlag(FLAGS_new) && trainer->step() == 0) {
    const models::AdapterStart start = {
        .seed = job.seed, .folder = device::FromUsersFolder(absl::GetFlag(FLAGS_adapter))};
    BRIGADE_RETURN_IF_ERROR(trainer->WithModel([&](auto& model, auto& zero, auto& ranks) {
      return models::LoadWeights(folder, static_cast<models::Decoder&>(model), zero, ranks,
                                 device::SystemCalls::Real(), start);
    }));
  }
  const absl::StatusOr<train::Outcome> outcome = trainer->Fit();
  interrupt.Disarm();
  // Also of a training that has failed, which has had no report.
  watch->Close(train::Watch::kPatience);
  const absl::Status traced = watch->recorder().Finish();
  BRIGADE_RETURN_IF_ERROR(outcome.status());
  interrupted = outcome->interrupted;
  absl::Status saved;
  if (!adapter.empty() && !interrupted) {
    saved = trainer->WithModel([&](auto& model, auto& zero, auto& ranks) {
      return models::SaveAdapter(adapter, static_cast<models::Decoder&>(model), zero, ranks,
                                 folder);
    });
  }
  return device::AllErrors({saved, outcome->incomplete, traced});
}

}  // namespace
}  // namespace brigade

int main(int argc, char** argv) {
  brigade::train::ResumeFromSave(argc, argv);
  bool interrupted = false;
  const int code = brigade::device::RunProgram(
      argc, argv, "Trains GPT-2 or Llama on texts or chats, in any ZeRO stage.",
      [&] { return brigade::Run(interrupted); });
  // Whoever has interrupted it sees so by the code, whatever else there is.
  return interrupted ? brigade::train::Interrupt::kExitCode : code;
}
