#pragma once
// What a client did wrong, or what the server cannot do, as the OpenAI error object. Plain values. Source:
// serving.md 4.7.
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "dsf/base/result.h"
#include "dsf/json/json.h"

namespace dsf::serve {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;      // request field; empty: null
  std::string code;       // empty: null
  int retry_after_s = 0;  // 0: no Retry-After header

  std::string_view type() const;  // by status: "invalid_request_error", "server_error", ...
  json::Value body() const;       // {"error": {message, type, param, code}}
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;

tl::unexpected<ApiError> refuse(std::string message, std::string param = {}, std::string code = {});
tl::unexpected<ApiError> refuse_with(int status, std::string message, std::string param = {}, std::string code = {},
                                     int retry_after_s = 0);
// An Error about the request (its subject is a path in it) becomes 400; anything else 500.
ApiError from_error(const Error& error);
// What EngineLoop::submit() answers.
ApiError from_submit(const Error& error);

}  // namespace dsf::serve

// As DSF_TRY, in functions that return ApiResult.
#define DSF_API_TRY(decl, expr)                                                                 \
  auto DSF_CAT(dsf_api_, __LINE__) = (expr);                                                    \
  if (!DSF_CAT(dsf_api_, __LINE__)) return tl::unexpected(DSF_CAT(dsf_api_, __LINE__).error()); \
  decl = std::move(*DSF_CAT(dsf_api_, __LINE__))
#define DSF_API_OK(expr)                                                         \
  do {                                                                           \
    if (auto dsf_ok_ = (expr); !dsf_ok_) return tl::unexpected(dsf_ok_.error()); \
  } while (false)
// For functions that return Result: its Error becomes an ApiError.
#define DSF_API_FROM(decl, expr)                                                          \
  auto DSF_CAT(dsf_api_, __LINE__) = (expr);                                              \
  if (!DSF_CAT(dsf_api_, __LINE__))                                                       \
    return tl::unexpected(::dsf::serve::from_error(DSF_CAT(dsf_api_, __LINE__).error())); \
  decl = std::move(*DSF_CAT(dsf_api_, __LINE__))
