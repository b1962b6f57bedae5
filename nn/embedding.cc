#include "brigade/nn/embedding.h"

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/embedding_math.h"
#include "brigade/nn/enqueue.h"

namespace brigade::nn {

absl::Status Embedding(const Texts& texts, precision::DType dtype, int64_t width,
                       const void* tokens, const void* positions, void* x, device::Stream& stream) {
  return WithType("embedding", dtype, [&](auto tag) {
    using T = decltype(tag);
    const EmbeddingRows<T> rows = {texts, Typed<T>(tokens), Typed<T>(positions), Typed<T>(x),
                                   width};
    return EnqueueRows(
        {"embedding",
         {Read(texts.bytes, texts.size()), Read(rows.tokens, kVocabulary * width),
          Read(rows.positions, texts.context * width), Write(rows.x, texts.rows() * width)}},
        texts.rows(), rows, stream);
  });
}

namespace {

absl::Status EnqueueOrder(const Texts& texts, const Workspace& workspace, device::Stream& stream) {
  if (workspace.rows() < texts.rows()) {
    return absl::InvalidArgumentError(absl::StrCat("embedding_backward: the workspace is for ",
                                                   workspace.rows(), " rows; the texts have ",
                                                   texts.rows()));
  }
  const device::Access accesses[] = {
      Read(texts.bytes, texts.size()),
      device::Writes(workspace.memory().data(), workspace.memory().bytes())};
  const device::Operation operation = {"order_tokens", accesses};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(LaunchOrderTokens(texts, workspace.order(), workspace.sort_memory(),
                                                  static_cast<cudaStream_t>(cuda_stream)),
                                operation.name);
    });
  }
#endif
  return stream.Enqueue(operation, [texts, order = workspace.order()](device::ThreadPool&) {
    OrderTokens(texts, order);
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status EmbeddingBackward(const Texts& texts, precision::DType dtype, int64_t width,
                               const void* dx, Gradient dtokens, Gradient dpositions,
                               const Workspace& workspace, device::Stream& stream) {
  return WithType("embedding_backward", dtype, [&](auto tag) {
    using T = decltype(tag);
    const int64_t size = texts.rows() * width, parts = MostTokenParts(texts.rows());
    BRIGADE_RETURN_IF_ERROR(
        CheckParts<TokenGradient<T>>("embedding_backward", width, parts, workspace, stream));
    BRIGADE_RETURN_IF_ERROR(EnqueueOrder(texts, workspace, stream));
    const TokenGradient<T> token = {workspace.order(), Typed<T>(dx), Typed<T>(dtokens.data),
                                    dtokens.accumulate, width};
    BRIGADE_RETURN_IF_ERROR(
        EnqueueParts({"embedding_backward",
                      {device::Writes(workspace.memory().data(), workspace.memory().bytes()),
                       Read(token.dx, size), Write(token.dtokens, kVocabulary * width)}},
                     kVocabulary, width, token, parts, workspace, stream));
    const PositionGradient<T> position = {
        token.dx, Typed<T>(dpositions.data), dpositions.accumulate, texts.batch, texts.context,
        width};
    return EnqueueColumns(
        {"embedding_backward",
         {Read(position.dx, size), Write(position.dpositions, texts.context * width)}},
        texts.context, width, position, stream);
  });
}

}  // namespace brigade::nn
