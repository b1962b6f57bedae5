#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_PROVED_PAIR_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_PROVED_PAIR_H_

#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "gloo/transport/tcp/context.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/tcp/pair.h"

namespace brigade::collectives::internal {

// What both ends of a connection send first, and what they must hear: strings of kProofBytes that
// only the two ranks know, another one in each direction.
struct Proofs {
  std::string own, others;
};
inline constexpr size_t kProofBytes = 32;

// A pair of Gloo that takes the connection of its peer alone: the connecting end proves itself
// before the listening one hands the connection to Gloo, and is answered by a proof before it is
// connected. Who proves nothing is kept out, and the pair goes on listening. What Gloo's thread
// throws becomes an error of the pair, and does not end the process.
//
// Usage        Expect, then connect.
// Threads      As Gloo's: events come from the device's thread.
class ProvedPair final : public ::gloo::transport::tcp::Pair {
 public:
  ProvedPair(::gloo::transport::tcp::Context* context, ::gloo::transport::tcp::Device* device,
             int rank, std::chrono::milliseconds timeout);
  ~ProvedPair() override;

  // Whether nobody has come in before this object was made as a whole: else it is to be made anew.
  bool IsUntouched();
  // From now on connections are taken. False if IsUntouched is.
  bool Expect(const Proofs& proofs);

  void handleEvents(int events) override;

 private:
  // A connection that has not proved itself yet. Places are used again, never freed: an event of
  // one before may still be on its way.
  class Candidate final : public ::gloo::transport::tcp::Handler {
   public:
    void Begin(ProvedPair* pair, int fd);
    // Of the device's thread.
    void handleEvents(int events) override;
    void Close();
    bool is_open() const { return fd_ >= 0; }

   private:
    ProvedPair* pair_ = nullptr;
    int fd_ = -1;
    std::string heard_;
  };

  void HandleEvents(int events);
  void Accept();
  void Answer();
  void Take(int fd);
  // With m_ held.
  void Fail(const absl::Status& status);

  Proofs proofs_;
  bool has_sent_ = false;
  std::string heard_;
  std::array<Candidate, 16> candidates_;
  size_t next_candidate_ = 0;
};

// Of proved pairs.
class ProvedContext final : public ::gloo::transport::tcp::Context {
 public:
  using Context::Context;

  std::unique_ptr<::gloo::transport::Pair>& createPair(int rank) override;
  ProvedPair& pair(int rank) { return static_cast<ProvedPair&>(*getPair(rank)); }
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_PROVED_PAIR_H_
