#pragma once
// The text the made tokenizer learns its merges from. Ours, written for this purpose.
#include <string_view>

namespace dsf::made_checkpoint {
std::string_view training_text();
}
