#include "small_files.h"

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "tokenizer.h"

namespace dsf::made_checkpoint {

Result<void> write_small_files(const std::filesystem::path& dir) {
  using json::Value;
  const auto text_of = [](const char* token) { return std::string(token); };
  const Value tokenizer_config = json::Object{{"add_bos_token", false},
                                              {"add_eos_token", false},
                                              {"bos_token", text_of("<｜begin▁of▁sentence｜>")},
                                              {"clean_up_tokenization_spaces", false},
                                              {"eos_token", text_of("<｜end▁of▁sentence｜>")},
                                              {"model_max_length", 16384},
                                              {"pad_token", text_of("<｜end▁of▁sentence｜>")},
                                              {"tokenizer_class", "PreTrainedTokenizerFast"},
                                              {"unk_token", nullptr}};
  const auto id = [](const char* token) { return made_tokenizer().find(token).value_or(-1); };
  const Value generation = json::Object{{"_from_model_config", true},
                                        {"bos_token_id", id("<｜begin▁of▁sentence｜>")},
                                        {"eos_token_id", id("<｜end▁of▁sentence｜>")},
                                        {"do_sample", true},
                                        {"temperature", 1.0},
                                        {"top_p", 0.95},
                                        {"transformers_version", "5.6.0"}};
  DSF_OK(io::write_file_atomic(dir / "tokenizer.json", tokenizer_json()));
  DSF_OK(
      io::write_file_atomic(dir / "tokenizer_config.json", json::dump(tokenizer_config, json::Style::kPretty) + "\n"));
  return io::write_file_atomic(dir / "generation_config.json", json::dump(generation, json::Style::kPretty) + "\n");
}

Result<std::string> digest(const std::filesystem::path& dir) {
  DSF_TRY(const std::vector<std::string> files, io::list_files(dir));
  codec::Sha256 all;
  for (const std::string& file : files) {
    DSF_TRY(const codec::Digest one, codec::sha256_file(dir / file));
    all.update(as_bytes(file + "\n" + one.hex() + "\n"));
  }
  return all.finish().hex();
}

}  // namespace dsf::made_checkpoint
