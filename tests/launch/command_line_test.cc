#include "brigade/launch/command_line.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/launch/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::launch {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(CommandLineTest, FlagsAreDeepSpeedsAndTorchruns) {
  const auto options = ParseCommandLine(std::vector<std::string>{
      "--hostfile", "h", "--include=a@b:0", "--master-port=29501", "--max-restarts", "3",
      "--nnodes=1:2", "--grace=1m30s", "--enable_each_rank_log=logs", "--bind-cores-to-rank",
      "--launcher=ssh", "--launcher_args=-p 22  -o 'Proxy a'\\ b \"\"", "train", "--include=x",
      "--", "y"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->hostfile, "h");
  EXPECT_EQ(options->include, "a@b:0");
  EXPECT_EQ(options->master_port, 29501);
  EXPECT_EQ(options->max_restarts, 3);
  EXPECT_EQ(options->min_nodes, 1);
  EXPECT_EQ(options->max_nodes, 2);
  EXPECT_EQ(options->grace, absl::Seconds(90));
  EXPECT_EQ(options->log_directory, "logs");
  EXPECT_TRUE(options->bind_cores);
  EXPECT_EQ(options->launcher, BackEnd::kSsh);
  EXPECT_THAT(options->launcher_args, ElementsAre("-p", "22", "-o", "Proxy a b", ""));
  // What follows the program is its own.
  EXPECT_THAT(options->program, ElementsAre("train", "--include=x", "--", "y"));
  EXPECT_THAT(ParseCommandLine(std::vector<std::string>{"--", "--odd"})->program,
              ElementsAre("--odd"));
}

TEST(CommandLineTest, AnErrorNamesTheWord) {
  const struct {
    std::vector<std::string> words;
    const char* error;
  } cases[] = {
      {{}, "no program is given"},
      {{"--hostfile=h"}, "no program is given"},
      {{"--hostfle=h", "x"}, "there is no flag --hostfle; --hostfile is the nearest"},
      {{"--num_gpus=1000000000", "x"},
       "--num_gpus is \"1000000000\"; it must be a whole number from 1 to 4096"},
      {{"--zzz", "x"}, "there is no flag --zzz; --help lists all"},
      {{"--hostfile"}, "--hostfile needs a value: FILE"},
      {{"--hostfile=", "x"}, "--hostfile is \"\"; it is empty"},
      {{"--standalone=yes", "x"}, "--standalone takes no value"},
      {{"--master_port=65536", "x"},
       "--master_port is \"65536\"; it must be a whole number from 0"},
      {{"--max_restarts=-1", "x"}, "--max_restarts is \"-1\"; it must be a whole number from 0 on"},
      {{"--nnodes=2:1", "x"}, "--nnodes is \"2:1\"; it must be a number of hosts, or MIN:MAX"},
      {{"--nnodes=1:2:3", "x"}, "--nnodes is \"1:2:3\""},
      {{"--nproc_per_node=some", "x"}, "--nproc_per_node is \"some\"; it must be a number"},
      {{"--launcher=mpich", "x"}, "it must be local, ssh, pdsh, openmpi, slurm"},
      {{"--grace=soon", "x"}, "--grace is \"soon\"; it must be a time"},
      {{"--grace=-1", "x"}, "it must be from 0 to a week"},
      {{"--include=a", "--exclude=b", "--hostfile=h", "x"}, "--include does not go with --exclude"},
      {{"--include=a", "--num_gpus=1", "--hostfile=h", "x"},
       "--include does not go with --num_nodes and --num_gpus"},
      {{"--launcher_args='a", "x"}, "a quotation mark has no other one"},
      {{"--launcher=slurm", "--save_pid", "x"}, "--save_pid does not go with --launcher=slurm"},
      {{"--launcher=local", "--launcher=mpich", "x"}, "it must be local, ssh"},
      {{"--host_timeout=0", "x"}, "it must be from 100ms to a week"},
      {{"--launcher=ssh", "x"}, "--launcher=ssh needs --hostfile"},
      {{"--num_nodes=2", "x"}, "several hosts need --hostfile"},
      {{"--node_rank=1", "x"}, "--node_rank needs --no_ssh"},
      {{"--no_ssh", "--hostfile=h", "x"}, "--no_ssh needs --node_rank"},
      {{"--no_ssh", "--num_nodes=2", "--node_rank=0", "x"},
       "--no_ssh needs --master_addr and --master_port"},
      {{"--no_ssh", "--max_restarts=1", "x"}, "--max_restarts needs --launcher=local or ssh"},
      {{"--launcher=slurm", "--max_restarts=1", "x"}, "--max_restarts needs"},
      {{"--module", "--no_python", "x"}, "--module does not go with --no_python"},
      {{"--standalone", "--hostfile=h", "x"}, "--standalone does not go with a hostfile"},
  };
  for (const auto& each : cases) {
    EXPECT_THAT(ParseCommandLine(each.words).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(each.error)))
        << each.error;
  }
}

TEST(CommandLineTest, WithoutAHostfileTheRanksAreThoseOfThisHost) {
  const auto slots = [](std::vector<std::string> words, int gpus) {
    words.push_back("x");
    const auto hosts = HostsOf(ParseCommandLine(words).value(), gpus);
    EXPECT_TRUE(hosts.ok()) << hosts.status();
    return hosts.ok() ? CountRanks(*hosts) : 0;
  };
  EXPECT_EQ(slots({}, 0), 1);
  EXPECT_EQ(slots({}, 4), 4);
  EXPECT_EQ(slots({"--nproc_per_node=3"}, 4), 3);
  EXPECT_EQ(slots({"--nproc_per_node=gpu"}, 4), 4);
  EXPECT_EQ(slots({"--nproc_per_node=auto"}, 4), 4);
  EXPECT_EQ(slots({"--num_gpus=2"}, 0), 2);
  EXPECT_GE(slots({"--nproc_per_node=cpu"}, 4), 1);
  EXPECT_EQ(slots({"--no_ssh", "--node_rank=0", "--nnodes=3", "--nproc_per_node=2",
                   "--master_addr=h", "--master_port=1"},
                  0),
            6);
  EXPECT_EQ(slots({"--include=localhost:1,2"}, 4), 2);
  EXPECT_EQ(slots({"--exclude=localhost:0"}, 4), 3);
  const auto fails = [](const std::vector<std::string>& words, int gpus, const char* error) {
    EXPECT_THAT(HostsOf(ParseCommandLine(words).value(), gpus).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(error)));
  };
  fails({"--num_gpus=3", "x"}, 2, "--num_gpus is 3, and this host has 2");
  fails({"--include=a", "x"}, 2, "there is no host \"a\"; there are localhost");
  fails({"--no_ssh", "--node_rank=0", "--nnodes=1000", "--nproc_per_node=4096", "--master_addr=h",
         "--master_port=1", "x"},
        0, "1000 hosts of 4096 slots are more than 1048576 ranks");
  fails({"--hosts=a", "--nnodes=4", "x"}, 0, "--nnodes needs 4 hosts, and there are 1");
  // Of those that a filter leaves.
  fails({"--hosts=a@b@c", "--nnodes=3", "--exclude=c", "x"}, 0,
        "--nnodes needs 3 hosts, and there are 2");
  fails({"--hosts=a@b@c", "--nnodes=2:3", "--include=b", "x"}, 0,
        "--nnodes needs 2 hosts, and there are 1");
  EXPECT_THAT(HostsOf(ParseCommandLine({"--nproc_per_node=gpu", "x"}).value(), 0).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("there is none")));
}

// Only who starts them again has a use for more.
TEST(CommandLineTest, AtMostSoManyHostsAreStarted) {
  const auto names = [](std::vector<std::string> words) {
    for (const char* const more : {"--hosts=a@b@c", "x"}) words.push_back(more);
    const auto hosts = HostsOf(ParseCommandLine(words).value(), 0);
    EXPECT_TRUE(hosts.ok()) << hosts.status();
    std::string names;
    for (const Host& host : hosts.value_or(std::vector<Host>())) names += host.name;
    return names;
  };
  for (const char* const launcher : {"pdsh", "openmpi", "slurm"}) {
    EXPECT_EQ(names({"--nnodes=2", absl::StrCat("--launcher=", launcher)}), "ab") << launcher;
    EXPECT_EQ(names({"--nnodes=1:4", absl::StrCat("--launcher=", launcher)}), "abc") << launcher;
    EXPECT_EQ(names({absl::StrCat("--launcher=", launcher)}), "abc") << launcher;
  }
  EXPECT_EQ(
      names({"--nnodes=2", "--no_ssh", "--node_rank=0", "--master_addr=a", "--master_port=1"}),
      "ab");
  EXPECT_EQ(names({"--nnodes=2"}), "abc");
  EXPECT_EQ(names({"--nnodes=1:2", "--launcher=ssh", "--max_restarts=3"}), "abc");
}

// DeepSpeed gives the ranks of hosts with 2 and 3 slots the local ranks 0 1 2 0 1.
TEST(RanksTest, LocalRanksCountOnEachHost) {
  Gathering gathering;
  gathering.hosts = {{"a", {0, 1}}, {"b", {1, 3, 4}}};
  gathering.master_addr = "10.0.0.1";
  gathering.master_port = 29500;
  gathering.run_id = "job";
  gathering.secret = "s";
  gathering.restart = 1, gathering.max_restarts = 2;
  const auto ranks = RanksOf(gathering);
  std::string text;
  for (const auto& of_host : ranks) {
    for (const Rank& rank : of_host.ranks) {
      text += std::to_string(rank.rank) + "/" + std::to_string(rank.local_rank) + " ";
    }
    text += "| ";
  }
  EXPECT_EQ(text, "0/0 1/1 | 2/0 3/1 4/2 | ");
  const Variables expected = {{"RANK", "3"},
                              {"ROLE_RANK", "3"},
                              {"LOCAL_RANK", "1"},
                              {"WORLD_SIZE", "5"},
                              {"LOCAL_SIZE", "3"},
                              {"LOCAL_WORLD_SIZE", "3"},
                              {"GROUP_RANK", "1"},
                              {"GROUP_WORLD_SIZE", "2"},
                              {"CROSS_RANK", "1"},
                              {"CROSS_SIZE", "2"},
                              {"NODE_RANK", "1"},
                              {"ROLE_WORLD_SIZE", "5"},
                              {"ROLE_NAME", "default"},
                              {"MASTER_ADDR", "10.0.0.1"},
                              {"MASTER_PORT", "29500"},
                              {"CUDA_VISIBLE_DEVICES", "1,3,4"},
                              {"BRIGADE_JOB_SECRET", "s"},
                              {"TORCHELASTIC_RUN_ID", "job"},
                              {"TORCHELASTIC_RESTART_COUNT", "1"},
                              {"TORCHELASTIC_MAX_RESTARTS", "2"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
  // The host's are told once.
  Variables all = ranks[1].ranks[1].variables;
  EXPECT_THAT(all, SizeIs(3));
  all.insert(ranks[1].variables.begin(), ranks[1].variables.end());
  EXPECT_EQ(all, expected);
}

}  // namespace
}  // namespace brigade::launch
