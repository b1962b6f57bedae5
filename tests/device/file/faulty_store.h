#ifndef BRIGADE_TESTS_DEVICE_FILE_FAULTY_STORE_H_
#define BRIGADE_TESTS_DEVICE_FILE_FAULTY_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "brigade/device/file/file_store.h"
#include "brigade/tests/device/file/faulty_engine.h"
#include "brigade/tests/device/file/store_fixture.h"

namespace brigade::device {

class FaultyStoreTest : public FileStoreTest {
 protected:
  // A store of one chunk, committed, over a disk whose faults the test sets.
  std::unique_ptr<FileStore> CreateFaulty() {
    auto store = FileStore::Create(options_, "state", {kBytes},
                                   {std::make_unique<FaultyEngine>(Engine(), disk_)});
    EXPECT_OK(store);
    EXPECT_OK(WriteNow(**store, 0, first_));
    EXPECT_OK(CommitNow(**store));
    return *std::move(store);
  }

  // What is committed is there, and the store goes on.
  void ExpectGoesOn(FileStore& store) {
    disk_.Set(nullptr);
    ASSERT_OK(stream_->Reset());
    EXPECT_EQ(ReadNow(store, 0).value(), first_);
    EXPECT_OK(store.Abandon(*stream_));
    EXPECT_OK(WriteNow(store, 0, second_));
    EXPECT_OK(CommitNow(store));
    EXPECT_EQ(ReadNow(store, 0).value(), second_);
  }

  std::string path() const { return directory_.path() + "/state"; }

  static constexpr int64_t kBytes = 100'000;

  Disk disk_;
  const std::vector<char> first_ = Bytes(kBytes, 1), second_ = Bytes(kBytes, 2);
};
}  // namespace brigade::device

#endif  // BRIGADE_TESTS_DEVICE_FILE_FAULTY_STORE_H_
