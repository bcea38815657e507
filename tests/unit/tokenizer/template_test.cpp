// The Jinja template is rendered by an outside judge, by hand; this keeps the recorded verdict and the template together.
#include "dsf/codec/sha256.h"
#include "fixtures.h"

using namespace dsf;
using namespace dsf::test;

TEST_CASE("the chat template is the one whose verdict is recorded, and no case differs") {
  const std::string verdict = read(golden() / "chat_template/result.txt");
  const std::string text = read(golden() / "../../manifests/templates/deepseek-v4.1-chat.jinja");
  CHECK_MESSAGE(verdict.find("template sha256 " + codec::sha256(std::string_view(text)).hex() + "\n") != std::string::npos,
                "run tests/oracle/chat_template_check.py again");
  CHECK(verdict.find("DIFFERS") == std::string::npos);
}
