#include "brigade/device/files.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/full_disk.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FilesTest : public ::testing::Test {
 protected:
  FilesTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  std::string PathOf(const char* name) const { return absl::StrCat(folder_, "/", name); }
  std::string Make(const char* name, const std::string& bytes) const {
    std::FILE* const file = std::fopen(PathOf(name).c_str(), "wb");
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
    return PathOf(name);
  }

  // A path to each thing that is no file, and what it is called.
  std::vector<std::pair<std::string, const char*>> NoFiles() const {
    const std::string pipe = PathOf("pipe"), socket_path = PathOf("socket");
    EXPECT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_path.c_str(), sizeof(address.sun_path) - 1);
    std::vector<std::pair<std::string, const char*>> all = {{folder_, "a folder"},
                                                            {pipe, "a pipe"},
                                                            {"/dev/zero", "a device"},
                                                            {"/dev/full", "a device"}};
    // Where the path is short enough for one.
    if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
        socket_path.size() < sizeof(address.sun_path)) {
      all.emplace_back(socket_path, "a socket");
    }
    close(fd);
    return all;
  }

  const std::string folder_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/f");
};

TEST_F(FilesTest, AFileIsReadWhole) {
  const std::string bytes("a\0b\n", 4);
  EXPECT_EQ(ReadFile(Make("file", bytes)).value(), bytes);
  EXPECT_EQ(ReadFile(Make("empty", "")).value(), "");
  // As an input a link is as good as what it leads to.
  ASSERT_EQ(symlink(PathOf("file").c_str(), PathOf("link").c_str()), 0);
  EXPECT_EQ(ReadFile(PathOf("link")).value(), bytes);
  EXPECT_THAT(ReadFile(PathOf("none")).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(PathOf("none"))));
}

TEST_F(FilesTest, WhatIsNoFileIsRefusedAtOnceByName) {
  for (const auto& [path, what] : NoFiles()) {
    // A socket cannot even be opened.
    if (std::strcmp(what, "a socket") != 0) {
      EXPECT_THAT(ReadFile(path).status(),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           absl::StrCat(path, " is ", what, ", not a file")));
    }
    for (const absl::Status& status :
         {OpenForWriting(path).status(), FileReplacement::Begin(path).status()}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   absl::StrCat(path, " is ", what, ", not a file")));
    }
  }
}

TEST_F(FilesTest, ALargeFileIsRefusedBeforeMemoryIsTaken) {
  EXPECT_THAT(ReadFile(Make("file", "12345"), 4).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       absl::StrCat(PathOf("file"), " has 5 bytes; at most 4 are read")));
  // 8 TiB of nothing.
  const std::string sparse = Make("sparse", "");
  ASSERT_EQ(truncate(sparse.c_str(), off_t{1} << 43), 0);
  EXPECT_THAT(ReadFile(sparse).status(), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(FilesTest, AReplacementIsThereAsAWholeOrNotAtAll) {
  const std::string path = Make("file", "old");
  {
    auto file = FileReplacement::Begin(path).value();
    file.Write("new");
    EXPECT_EQ(ReadFile(path).value(), "old");
    ASSERT_OK(file.Commit());
    EXPECT_EQ(ReadFile(path).value(), "new");
  }
  {
    auto file = FileReplacement::Begin(path).value();
    file.Write("newer");
  }
  EXPECT_EQ(ReadFile(path).value(), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  // One that an earlier process left does no harm.
  Make(absl::StrCat("file.", getpid(), ".part").c_str(), "half of something else");
  auto file = FileReplacement::Begin(path).value();
  file.Write("4th");
  ASSERT_OK(file.Commit());
  EXPECT_EQ(ReadFile(path).value(), "4th");
}

TEST_F(FilesTest, AReplacementKeepsThePermissions) {
  const std::string path = Make("file", "old");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  auto file = FileReplacement::Begin(path).value();
  ASSERT_OK(file.Commit());
  struct stat status = {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600);
}

// Where it writes meanwhile.
TEST_F(FilesTest, AReplacementLeavesAloneWhatHasTwoNames) {
  const std::string target = Make("target", "kept");
  const std::string beside = PathOf(absl::StrCat("file.", getpid(), ".part").c_str());
  ASSERT_EQ(link(target.c_str(), beside.c_str()), 0);
  auto file = FileReplacement::Begin(PathOf("file")).value();
  file.Write("new");
  ASSERT_OK(file.Commit());
  EXPECT_EQ(ReadFile(target).value(), "kept");
  EXPECT_EQ(ReadFile(PathOf("file")).value(), "new");
}

TEST_F(FilesTest, NamesAreMadePrintable) {
  EXPECT_THAT(std::string(ReadFile(PathOf("a\x1b[2J")).status().message()),
              HasSubstr("/a\\x1b[2J"));
  EXPECT_LT(ReadFile(std::string(5000, 'a')).status().message().size(), 1000u);
}

TEST_F(FilesTest, ReadersSayWhatTheSystemSays) {
  // Nothing is mapped at address 0.
  auto memory = InputFile::Open("/proc/self/mem").value();
  char byte = 0;
  EXPECT_THAT(std::string(memory.Read(&byte, 1).message()),
              AllOf(StartsWith("cannot read /proc/self/mem: "), HasSubstr(std::strerror(EIO))));
  auto file = InputFile::Open(Make("file", "1")).value();
  EXPECT_OK(file.Read(&byte, 1));
  EXPECT_THAT(file.Read(&byte, 1),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/file: it has become shorter")));
}

TEST_F(FilesTest, WritersFollowNoLink) {
  const std::string target = Make("target", "kept"), link = PathOf("link");
  ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
  const auto refused =
      StatusIs(absl::StatusCode::kInvalidArgument, absl::StrCat(link, " is a link, not a file"));
  EXPECT_THAT(OpenForWriting(link).status(), refused);
  EXPECT_THAT(FileReplacement::Begin(link).status(), refused);
  // Nor where it writes meanwhile.
  ASSERT_EQ(
      symlink(target.c_str(), PathOf(absl::StrCat("file.", getpid(), ".part").c_str()).c_str()), 0);
  EXPECT_THAT(FileReplacement::Begin(PathOf("file")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(".part is a link")));
  EXPECT_EQ(ReadFile(target).value(), "kept");
}

TEST_F(FilesTest, AFullDiskIsNamed) {
  const std::string path = Make("file", "old");
  absl::Status status;
  {
    const brigade::testing::FullDisk full(4096);
    auto file = FileReplacement::Begin(path).value();
    for (int i = 0; i < 100; ++i) file.Write(std::string(1000, 'a'));
    status = file.Commit();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               AllOf(StartsWith("cannot write "), HasSubstr(path))));
  EXPECT_EQ(ReadFile(path).value(), "old");
}

}  // namespace
}  // namespace brigade::device
