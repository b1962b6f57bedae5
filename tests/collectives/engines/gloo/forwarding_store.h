#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_FORWARDING_STORE_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_FORWARDING_STORE_H_

#include <memory>
#include <string>
#include <utility>

#include "brigade/collectives/bootstrap/store.h"

namespace brigade::collectives::testing {

// Another store, for tests that do something of their own at one of its calls.
class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  absl::Status Set(const std::string& key, const std::string& value,
                   absl::Duration timeout) override {
    return store_->Set(key, value, timeout);
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    return store_->Get(key, timeout);
  }
  absl::Status Remove(const std::string& key, absl::Duration timeout) override {
    return store_->Remove(key, timeout);
  }
  absl::Status KeepSurvivors(absl::Span<const int> survivors, absl::Duration timeout) override {
    return store_->KeepSurvivors(survivors, timeout);
  }
  std::string local_host() const override { return store_->local_host(); }
  JobSecret secret() const override { return store_->secret(); }

 private:
  const std::shared_ptr<Store> store_;
};

}  // namespace brigade::collectives::testing

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_FORWARDING_STORE_H_
