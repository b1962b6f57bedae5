// What api.h writes down of NCCL's binary interface is what nccl.h says, where there is one.

#include "brigade/collectives/engines/nccl/api.h"

#include <cstddef>
#include <type_traits>

#include "gtest/gtest.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_fp16.h>)
#include <nccl.h>

namespace brigade::collectives {
namespace {

// As many arguments, of the same sizes, pointers where there are pointers.
template <typename Ours, typename Theirs>
constexpr bool kAlike = false;
template <typename R, typename... A, typename S, typename... B>
requires(sizeof...(A) == sizeof...(B)) constexpr bool kAlike<R (*)(A...), S (*)(B...)> =
    sizeof(R) == sizeof(S) &&
    ((sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>)&&...);

#define EXPECT_ALIKE(ours, theirs) \
  static_assert(kAlike<decltype(NcclApi::ours), decltype(&nccl##theirs)>)

EXPECT_ALIKE(get_version, GetVersion);
EXPECT_ALIKE(get_error_string, GetErrorString);
EXPECT_ALIKE(get_last_error, GetLastError);
EXPECT_ALIKE(get_unique_id, GetUniqueId);
EXPECT_ALIKE(comm_init_rank_config, CommInitRankConfig);
EXPECT_ALIKE(comm_split, CommSplit);
EXPECT_ALIKE(comm_get_async_error, CommGetAsyncError);
EXPECT_ALIKE(comm_count, CommCount);
EXPECT_ALIKE(comm_user_rank, CommUserRank);
EXPECT_ALIKE(comm_finalize, CommFinalize);
EXPECT_ALIKE(comm_destroy, CommDestroy);
EXPECT_ALIKE(comm_abort, CommAbort);
EXPECT_ALIKE(comm_register, CommRegister);
EXPECT_ALIKE(comm_deregister, CommDeregister);
EXPECT_ALIKE(group_start, GroupStart);
EXPECT_ALIKE(group_end, GroupEnd);
EXPECT_ALIKE(all_reduce, AllReduce);
EXPECT_ALIKE(reduce_scatter, ReduceScatter);
EXPECT_ALIKE(all_gather, AllGather);
EXPECT_ALIKE(broadcast, Broadcast);
EXPECT_ALIKE(send, Send);
EXPECT_ALIKE(receive, Recv);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
EXPECT_ALIKE(comm_revoke, CommRevoke);
#endif

static_assert(std::is_same_v<NcclComm, ncclComm_t> && std::is_same_v<NcclStream, cudaStream_t>);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));

static_assert(int(NcclResult::kUnhandledCudaError) == ncclUnhandledCudaError);
static_assert(int(NcclResult::kSystemError) == ncclSystemError);
static_assert(int(NcclResult::kInternalError) == ncclInternalError);
static_assert(int(NcclResult::kInvalidArgument) == ncclInvalidArgument);
static_assert(int(NcclResult::kInvalidUsage) == ncclInvalidUsage);
static_assert(int(NcclResult::kRemoteError) == ncclRemoteError);
static_assert(int(NcclResult::kInProgress) == ncclInProgress);

static_assert(int(NcclType::kUint8) == ncclUint8 && int(NcclType::kInt32) == ncclInt32);
static_assert(int(NcclType::kInt64) == ncclInt64 && int(NcclType::kFloat16) == ncclFloat16);
static_assert(int(NcclType::kFloat32) == ncclFloat32 && int(NcclType::kFloat64) == ncclFloat64);
static_assert(int(NcclType::kBfloat16) == ncclBfloat16);
static_assert(int(NcclOp::kSum) == ncclSum && int(NcclOp::kMax) == ncclMax);
static_assert(int(NcclOp::kMin) == ncclMin);

static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));

TEST(NcclAbiTest, AConfigurationHasTheMagicOfTheHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(NcclConfig().magic, theirs.magic);
  EXPECT_EQ(NcclConfig().min_ctas, theirs.minCTAs);
  EXPECT_EQ(NcclConfig().net_name, theirs.netName);
}

}  // namespace
}  // namespace brigade::collectives
#endif
