#include "brigade/collectives/bootstrap/launch_info.h"

#include <map>
#include <string>

#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;

absl::StatusOr<LaunchInfo> Read(const std::map<std::string, std::string>& variables) {
  return LaunchInfoFromEnvironment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void ExpectLaunchInfo(const absl::StatusOr<LaunchInfo>& launch_info, int rank, int size,
                      int local_rank, const std::string& master_addr, int master_port) {
  ASSERT_TRUE(launch_info.ok()) << launch_info.status();
  EXPECT_EQ(launch_info->rank, rank);
  EXPECT_EQ(launch_info->size, size);
  EXPECT_EQ(launch_info->local_rank, local_rank);
  EXPECT_EQ(launch_info->master_addr, master_addr);
  EXPECT_EQ(launch_info->master_port, master_port);
}

void ExpectError(const std::map<std::string, std::string>& variables, const std::string& text) {
  EXPECT_THAT(Read(variables).status(), StatusIs(absl::StatusCode::kInvalidArgument, text));
}

TEST(EnvironmentTest, IsRankZeroOfOneWhereNothingIsSet) {
  ExpectLaunchInfo(Read({}), 0, 1, 0, "127.0.0.1", 29500);
  EXPECT_FALSE(Read({})->launched);
}

TEST(EnvironmentTest, KnowsALauncherThatStartsOneProcess) {
  EXPECT_TRUE(Read({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}})->launched);
}

TEST(EnvironmentTest, ReadsTheUsualVariables) {
  ExpectLaunchInfo(Read({{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"MASTER_ADDR", "10.0.0.7"},
                         {"MASTER_PORT", "1234"}}),
                   5, 8, 1, "10.0.0.7", 1234);
}

TEST(EnvironmentTest, ReadsOpenMpi) {
  ExpectLaunchInfo(Read({{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}),
                   2, 3, 2, "127.0.0.1", 29500);
}

TEST(EnvironmentTest, ReadsSlurmAndItsFirstHost) {
  const std::map<std::string, std::string> hosts = {
      {"gpu07", "gpu07"},       {"gpu07,gpu08", "gpu07"},      {"gpu[07-09,12],login1", "gpu07"},
      {"gpu[3,5]", "gpu3"},     {"login1,gpu[1-2]", "login1"}, {"a[1-2]b", "a1b"},
      {"a[1-2]b,c[3]d", "a1b"},
  };
  for (const auto& [list, host] : hosts) {
    ExpectLaunchInfo(Read({{"SLURM_PROCID", "1"},
                           {"SLURM_NTASKS", "2"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_STEP_NODELIST", list}}),
                     1, 2, 0, host, 29500);
  }
}

TEST(EnvironmentTest, MasterAddrWinsOverSlurm) {
  ExpectLaunchInfo(Read({{"SLURM_PROCID", "0"},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_STEP_NODELIST", "a,b"},
                         {"MASTER_ADDR", "c"}}),
                   0, 2, 0, "c", 29500);
}

TEST(EnvironmentTest, TakesOneSetAndNeverMixes) {
  ExpectLaunchInfo(Read({{"RANK", "0"},
                         {"WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_RANK", "7"},
                         {"OMPI_COMM_WORLD_SIZE", "9"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                         {"SLURM_PROCID", "4"}}),
                   0, 2, 0, "127.0.0.1", 29500);
  ExpectError({{"RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "9"}},
              "RANK=0 is set, but WORLD_SIZE is not");
}

TEST(EnvironmentTest, ASlurmAllocationWithoutATaskIsNotALaunch) {
  ExpectLaunchInfo(Read({{"SLURM_NTASKS", "8"}}), 0, 1, 0, "127.0.0.1", 29500);
}

TEST(EnvironmentTest, NamesTheVariableAndItsValue) {
  ExpectError({{"RANK", "1"}}, "RANK=1 is set, but WORLD_SIZE is not");
  ExpectError({{"WORLD_SIZE", "4"}}, "WORLD_SIZE=4 is set, but RANK is not");
  ExpectError({{"OMPI_COMM_WORLD_RANK", "1"}},
              "OMPI_COMM_WORLD_RANK=1 is set, but OMPI_COMM_WORLD_SIZE is not");
  ExpectError({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "RANK=4 is not less than WORLD_SIZE=4");
  ExpectError({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, "RANK=-1 is less than 0");
  ExpectError({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE=0 is less than 1");
  ExpectError({{"RANK", "one"}, {"WORLD_SIZE", "4"}}, "RANK='one' is not a whole number");
  ExpectError({{"RANK", ""}, {"WORLD_SIZE", "4"}}, "RANK='' is not a whole number");
  ExpectError({{"RANK", "99999999999"}, {"WORLD_SIZE", "4"}},
              "RANK='99999999999' is not a whole number");
  ExpectError({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "x"}},
              "LOCAL_RANK='x' is not a whole number");
  ExpectError({{"MASTER_PORT", "0"}}, "MASTER_PORT=0 is not in 1 to 65535");
  ExpectError({{"MASTER_PORT", "65536"}}, "MASTER_PORT=65536 is not in 1 to 65535");
  ExpectError({{"MASTER_ADDR", ""}}, "MASTER_ADDR='' is empty");
  ExpectError({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NODELIST", "gpu["}},
              "SLURM_STEP_NODELIST='gpu[' has no first host; set MASTER_ADDR");
}

TEST(EnvironmentTest, ReadsTheJobsNameAndSecret) {
  const std::map<std::string, std::string> torchrun = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  const auto with = [](std::map<std::string, std::string> variables,
                       const std::map<std::string, std::string>& more) {
    variables.insert(more.begin(), more.end());
    return variables;
  };
  EXPECT_EQ(Read(torchrun).value().job, "");
  EXPECT_EQ(Read(with(torchrun, {{"TORCHELASTIC_RUN_ID", "none"}})).value().job, "");
  EXPECT_EQ(Read(with(torchrun, {{"TORCHELASTIC_RUN_ID", "a"},
                                 {"TORCHELASTIC_RESTART_COUNT", "2"},
                                 {"SLURM_JOB_ID", "7"}}))
                .value()
                .job,
            "torchrun a");
  EXPECT_EQ(Read({{"OMPI_COMM_WORLD_RANK", "0"},
                  {"OMPI_COMM_WORLD_SIZE", "1"},
                  {"PMIX_NAMESPACE", "1234"}})
                .value()
                .job,
            "mpirun 1234");
  EXPECT_EQ(Read({{"SLURM_PROCID", "0"},
                  {"SLURM_NTASKS", "1"},
                  {"SLURM_JOB_ID", "7"},
                  {"SLURM_STEP_ID", "1"}})
                .value()
                .job,
            "slurm 7.1");
  EXPECT_FALSE(Read(torchrun).value().secret.has_value());
  const std::string hex(64, 'a');
  EXPECT_EQ(Read({{"BRIGADE_JOB_SECRET", hex}}).value().secret->ToHex(), hex);
  ExpectError({{"BRIGADE_JOB_SECRET", "a"}},
              "BRIGADE_JOB_SECRET: not a secret of 64 hexadecimal digits");
}

TEST(EnvironmentTest, ReadsThatTorchrunsAgentHoldsThePort) {
  std::map<std::string, std::string> torchrun = {{"RANK", "1"},
                                                 {"WORLD_SIZE", "4"},
                                                 {"LOCAL_WORLD_SIZE", "2"},
                                                 {"MASTER_ADDR", "host"},
                                                 {"MASTER_PORT", "1234"},
                                                 {"TORCHELASTIC_RUN_ID", "a"},
                                                 {"TORCHELASTIC_RESTART_COUNT", "2"},
                                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  const AgentStore agent_store = {.host = "host", .port = 1234, .key = "brigade/a/port of rank 0"};
  EXPECT_EQ(Read(torchrun).value().agent_store, agent_store);
  EXPECT_EQ(Read(torchrun).value().master_addr, "host");
  // All on one host.
  torchrun["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_EQ(Read(torchrun).value().agent_store, agent_store);
  EXPECT_EQ(Read(torchrun).value().master_addr, "127.0.0.1");
  torchrun["LOCAL_WORLD_SIZE"] = "x";
  ExpectError(torchrun, "LOCAL_WORLD_SIZE='x' is not a whole number");
  torchrun["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(Read(torchrun).value().agent_store, std::nullopt);
  EXPECT_EQ(Read(torchrun).value().master_addr, "host");
}

}  // namespace
}  // namespace brigade::collectives
