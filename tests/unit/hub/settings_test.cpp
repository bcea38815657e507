#include "dsf/hub/settings.h"

#include <doctest/doctest.h>

#include <map>

#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;

namespace {
hub::Environment env(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto it = values.find(name);
    return it == values.end() ? std::nullopt : std::optional<std::string>(it->second);
  };
}
}  // namespace

TEST_CASE("the proxy for a URL is named without its credentials, and exceptions hold") {
  const std::string home = "https://huggingface.co";
  CHECK(hub::proxy_for(env({}), home).empty());
  CHECK(hub::proxy_for(env({{"HTTPS_PROXY", "http://me:pw@proxy.lan:3128/"}}), home) == "proxy.lan:3128");
  CHECK(hub::proxy_for(env({{"ALL_PROXY", "proxy.lan:1"}}), home) == "proxy.lan:1");
  CHECK(hub::proxy_for(env({{"HTTP_PROXY", "proxy.lan:1"}}), "http://hub.lan")
            .empty());  // upper case is not read for http
  CHECK(hub::proxy_for(env({{"https_proxy", "p:1"}, {"NO_PROXY", "a, .huggingface.co"}}), home).empty());
  CHECK(hub::proxy_for(env({{"https_proxy", "p:1"}, {"no_proxy", "face.co"}}), home) == "p:1");
  CHECK(hub::proxy_for(env({{"http_proxy", "p:1"}}), "http://127.0.0.1:8080").empty());
}

TEST_CASE("the endpoint loses its slash and must be a URL") {
  CHECK(hub::settings_from(env({}))->endpoint == "https://huggingface.co");
  CHECK(hub::settings_from(env({{"HF_ENDPOINT", "http://127.0.0.1:80//"}}))->endpoint == "http://127.0.0.1:80");
  CHECK(hub::settings_from(env({{"HF_ENDPOINT", "huggingface.co"}})).error().code == Code::kUsage);
}

TEST_CASE("the token comes from file, variables and the client's own file, in this order, without line ends") {
  test::TempDir dir;
  REQUIRE(io::write_file_atomic(dir / "given", "hf_given\r\n"));
  REQUIRE(io::write_file_atomic(dir / "token", " hf_stored\n"));
  const std::string home = dir.path().string();
  CHECK(hub::settings_from(env({{"HF_TOKEN", "hf_env"}}), {dir / "given", false})->token == "hf_given");
  CHECK(hub::settings_from(env({{"HF_TOKEN", "hf_env"}, {"HF_HOME", home}}))->token == "hf_env");
  CHECK(hub::settings_from(env({{"HF_TOKEN", ""}, {"HUGGING_FACE_HUB_TOKEN", "hf_old"}}))->token == "hf_old");
  CHECK(hub::settings_from(env({{"HF_HOME", home}}))->token == "hf_stored");
  CHECK(hub::settings_from(env({{"HF_TOKEN_PATH", home + "/given"}}))->token == "hf_given");
  CHECK(hub::settings_from(env({{"HF_TOKEN", "hf_env"}}), {{}, true})->token.empty());
  CHECK(hub::settings_from(env({{"HF_TOKEN", "hf_env"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "yes"}}))->token.empty());
  CHECK(hub::settings_from(env({}), {dir / "none", false}).error().code == Code::kMissing);
  const auto bad = hub::settings_from(env({{"HF_TOKEN", "hf_a\nb"}}));
  REQUIRE(!bad);
  CHECK(bad.error().line().find("hf_a") == std::string::npos);
}

TEST_CASE("booleans, time-outs and certificates") {
  for (const char* yes : {"1", "on", "Yes", "TRUE"}) CHECK(hub::settings_from(env({{"HF_HUB_OFFLINE", yes}}))->offline);
  CHECK_FALSE(hub::settings_from(env({{"HF_HUB_OFFLINE", "0"}}))->offline);
  CHECK(hub::settings_from(env({{"HF_HUB_DOWNLOAD_TIMEOUT", "10"}}))->stall_timeout_us == 30'000'000);
  CHECK(hub::settings_from(env({{"HF_HUB_DOWNLOAD_TIMEOUT", "90"}}))->stall_timeout_us == 90'000'000);
  CHECK_FALSE(hub::settings_from(env({{"HF_HUB_DOWNLOAD_TIMEOUT", "soon"}})));
  CHECK(hub::settings_from(env({{"SSL_CERT_FILE", "/a"}, {"CURL_CA_BUNDLE", "/b"}}))->http.ca_bundle == "/b");
}

TEST_CASE("repositories are named in four ways") {
  const auto spec = [](std::string_view text) { return hub::parse_repo(text, "http://127.0.0.1:8"); };
  CHECK(spec("org/name")->repo == "org/name");
  CHECK(spec("org/name")->revision.empty());
  CHECK(spec("org/name@v1")->revision == "v1");
  CHECK(spec("hf://org/name@refs/pr/1")->revision == "refs/pr/1");
  CHECK(spec("https://huggingface.co/org/name/tree/refs%2Fpr%2F1")->revision == "refs/pr/1");
  CHECK(spec("http://127.0.0.1:8/org/name")->repo == "org/name");
  for (const char* bad : {"", "a/b/c", "../x", "org/na me", "org/name@", "/org/name", "org/name?x"})
    CHECK_MESSAGE(!spec(bad), bad);
}
