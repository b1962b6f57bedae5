#ifndef BRIGADE_COLLECTIVES_ENGINES_REGISTRATION_H_
#define BRIGADE_COLLECTIVES_ENGINES_REGISTRATION_H_

#include <functional>
#include <utility>

namespace brigade::collectives {

// Memory that an engine knows, until this is destroyed; see Communicator::Register.
class Registration {
 public:
  // Of no memory, or of memory for which an engine does nothing.
  Registration() = default;
  // `end` ends the registration.
  explicit Registration(std::function<void()> end) : end_(std::move(end)) {}
  ~Registration() { End(); }
  Registration(Registration&& other) noexcept : end_(std::exchange(other.end_, nullptr)) {}
  Registration& operator=(Registration&& other) noexcept {
    if (this != &other) {
      End();
      end_ = std::exchange(other.end_, nullptr);
    }
    return *this;
  }

 private:
  void End() {
    if (end_ != nullptr) end_();
  }

  std::function<void()> end_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_REGISTRATION_H_
