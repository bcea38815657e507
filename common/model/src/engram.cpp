#include "dsf/model/engram.h"

namespace dsf::model {

engram::Spec engram_spec(const Config& c) {
  return {.layer_ids = c.engram_layer_ids,
          .num_embeddings = c.engram_num_embeddings,
          .hash_vocab_size = c.engram_vocab_size,
          .max_ngram_size = c.engram_max_ngram_size,
          .n_heads = c.engram_n_heads,
          .head_dim = c.engram_head_dim,
          .pad_token_id = c.engram_pad_token_id,
          .compressed_vocab_size = c.engram_compressed_vocab_size,
          .vocab_size = c.vocab_size};
}

}  // namespace dsf::model
