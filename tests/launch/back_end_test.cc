#include "brigade/launch/back_end.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::launch {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Host> Hosts(const char* text) { return HostsFromList(text).value(); }

std::string Command(BackEnd launcher, const char* hosts, const Variables& exported = {}) {
  Options options;
  options.hosts = hosts;
  options.launcher = launcher;
  options.launcher_args = {"--more"};
  options.remote_program = "/opt/brigade launch";
  options.program = {"train.py", "it's"};
  const auto command = ForeignCommand(options, Hosts(hosts), exported);
  return command.ok() ? absl::StrJoin(*command, " ") : std::string(command.status().message());
}

TEST(BackEndTest, AWordIsOneForAShell) {
  EXPECT_EQ(ShellQuoted("--a=b/c.d"), "--a=b/c.d");
  EXPECT_EQ(ShellQuoted(""), "''");
  EXPECT_EQ(ShellQuoted("it's $(x)"), "'it'\\''s $(x)'");
  EXPECT_EQ(ShellQuoted("a\nb;c"), "'a\nb;c'");
}

TEST(BackEndTest, MpirunStartsTheRanks) {
  EXPECT_EQ(Command(BackEnd::kOpenMpi, "a:0,1@b:0,1,2", {{"NCCL_DEBUG", "INFO"}}),
            "mpirun -n 5 --host a:2,b:3 --more -x NCCL_DEBUG python3 -u train.py it's");
  EXPECT_EQ(
      Command(BackEnd::kOpenMpi, "a:1"),
      "--launcher=openmpi starts ranks on the first slots of a host, and a is to have others");
}

TEST(BackEndTest, SrunStartsTheRanks) {
  EXPECT_EQ(Command(BackEnd::kSlurm, "a:0,1@b:0,1", {{"LIST", "1,2"}}),
            "srun -n 4 --nodes=2 --nodelist=a,b --ntasks-per-node=2 --kill-on-bad-exit=1 "
            "--export=ALL --more python3 -u train.py it's");
  EXPECT_THAT(Command(BackEnd::kSlurm, "a:0,1@b:0"), HasSubstr("b has 1, a 2"));
}

TEST(BackEndTest, PdshStartsALauncherOnEachHost) {
  const std::string command = Command(BackEnd::kPdsh, "a:0,1@b:1", {{"PYTHONPATH", "50% of/it"}});
  EXPECT_THAT(command, HasSubstr("pdsh -S -f 1024 -w a,b --more cd "));
  // A percent sign is pdsh's, and two of them are one.
  EXPECT_THAT(command,
              HasSubstr(" && PYTHONPATH='50%% of/it' exec '/opt/brigade launch' --no_ssh "
                        "--node_rank=%n --hosts=a:0,1@b:1 --master_addr=a "
                        "--master_port=29500 --grace=30s --no_python -- python3 -u train.py "
                        "'it'\\''s'"));
}

TEST(BackEndTest, SshStartsAnAgent) {
  Options options;
  options.launcher = BackEnd::kSsh;
  options.ssh = "my_ssh";
  options.launcher_args = {"-p", "2222"};
  options.remote_program = "/opt/it's";
  EXPECT_THAT(AgentCommand(options, "host", "job;1"),
              ElementsAre("my_ssh", "-p", "2222", "host",
                          "exec '/opt/it'\\''s' '--agent=job;1' --agent_patience=30s"));
  // ssh itself, which nobody could tell a password. What the user says goes before it.
  for (const char* const ssh : {"ssh", "/usr/bin/ssh"}) {
    options.ssh = ssh;
    options.launcher_args = {"-o", "BatchMode=no"};
    options.host_timeout = absl::Seconds(1.5);
    EXPECT_THAT(AgentCommand(options, "host", "job"),
                ElementsAre(ssh, "-o", "BatchMode=no", "-o", "BatchMode=yes", "host",
                            "exec '/opt/it'\\''s' --agent=job --agent_patience=1.5s"));
  }
}

TEST(BackEndTest, AnEnvironmentFileIsLinesOfVariables) {
  EXPECT_EQ(VariablesFromText("# of all hosts\n\nA=1\n  B_2 = x=y\r\n", "file").status().message(),
            "file, line 4: \"B_2 = x=y\" is not NAME=VALUE");
  EXPECT_EQ(VariablesFromText("# of all hosts\n\nA=1\nB_2=x=y \n", "file").value(),
            (Variables{{"A", "1"}, {"B_2", "x=y"}}));
  for (const char* const text : {"A", "=1", "1A=2", "A-B=1"}) {
    EXPECT_THAT(VariablesFromText(text, "file").status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("file, line 1: ")));
  }
}

TEST(BackEndTest, SecretsAreNotExported) {
  setenv("BRIGADE_JOB_SECRET", "hidden", 1);
  setenv("BRIGADE_TRACE", "here", 1);
  setenv("DS_ENV_FILE", "/nowhere/at/all", 1);
  const auto exported = ExportedVariables();
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->count("BRIGADE_JOB_SECRET"), 0u);
  EXPECT_EQ(exported->at("BRIGADE_TRACE"), "here");
  EXPECT_EQ(exported->count("PATH"), 0u);
  EXPECT_THAT(Command(BackEnd::kPdsh, "a:0", *exported), Not(HasSubstr("hidden")));
}

TEST(BackEndTest, APercentSignOfTheProgramIsItsOwn) {
  Options options;
  options.launcher = BackEnd::kPdsh;
  options.program = {"train", "--no_ssh", "100%"};
  const auto command = ForeignCommand(options, Hosts("a:0"), {});
  ASSERT_TRUE(command.ok());
  EXPECT_THAT(command->back(), HasSubstr(" --no_ssh --node_rank=%n --hosts=a:0 "));
  EXPECT_THAT(command->back(), HasSubstr(" -- train --no_ssh 100%%"));
}

}  // namespace
}  // namespace brigade::launch
