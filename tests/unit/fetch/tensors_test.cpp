#include "tools/fetch/tensors.h"

#include <doctest/doctest.h>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/safetensors/safetensors.h"
#include "fixture.h"
#include "tools/fetch/range_fetch.h"

using namespace dsf;
using test::FetchFixture;

namespace {

std::vector<std::byte> some_bytes(size_t n, uint64_t seed) {
  const std::string text = test::noise(n, seed);
  const auto bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

// Two shards with an index, as org/st: routers with small biases between large weights, and a table with rows.
struct Checkpoint : FetchFixture {
  Checkpoint() {
    using tensor::DType;
    a = {{"layers.0.gate.weight", DType::kU8, {1000, 100}, some_bytes(100'000, 1)},
         {"layers.0.gate.bias", DType::kF32, {64}, some_bytes(256, 2)},
         {"layers.0.big", DType::kBF16, {500, 1000}, some_bytes(1'000'000, 3)},
         {"layers.1.gate.bias", DType::kF32, {64}, some_bytes(256, 4)}};
    b = {{"table", DType::kF16, {1000, 50}, some_bytes(100'000, 5)}, {"empty", DType::kF32, {0, 4}, {}}};
    REQUIRE(io::make_dirs(dir / "hub/org/st"));
    REQUIRE(safetensors::write_file(shard(0), a));
    REQUIRE(safetensors::write_file(shard(1), b));
    std::vector<safetensors::IndexEntry> index;
    for (const auto& t : a) index.push_back({t.name, shard(0).filename()});
    for (const auto& t : b) index.push_back({t.name, shard(1).filename()});
    REQUIRE(safetensors::write_index(dir / "hub/org/st/model.safetensors.index.json", index, 1));
  }
  std::filesystem::path shard(int i) const {
    return dir /
           (i == 0 ? "hub/org/st/model-00001-of-00002.safetensors" : "hub/org/st/model-00002-of-00002.safetensors");
  }
  fetch::TensorsOptions want(const std::vector<std::string>& names,
                             const std::vector<std::string>& regexes = {}) const {
    fetch::TensorsOptions o;
    o.what = "org/st";
    o.selection.names = names;
    o.selection.regexes = regexes;
    o.out = dir / "small.safetensors";
    o.connections = 3;
    o.quiet = true;
    return o;
  }
  Result<int> run(const fetch::TensorsOptions& o) const {
    fetch::Events events(false);
    return fetch::run_tensors(o, shared(), events);
  }
  uint64_t storage_bytes() const {
    uint64_t n = 0;
    for (const auto& e : hub->log()) n += e.host == "cdn" ? e.bytes : 0;
    return n;
  }
  json::Value record(const std::filesystem::path& path) const { return *json::parse(*io::read_text(path), "record"); }
  std::vector<safetensors::TensorData> a, b;
};

void check_tensor(const safetensors::File& file, const safetensors::TensorData& want) {
  const auto got = file.tensor(want.name);
  REQUIRE_MESSAGE(got, want.name);
  CHECK(got->shape() == want.shape);
  CHECK(got->dtype() == want.dtype);
  CHECK(std::equal(got->bytes.begin(), got->bytes.end(), want.bytes.begin(), want.bytes.end()));
}

manifest::Pin pin_of(const Checkpoint& c) {
  manifest::Pin base;
  base.name = "st";
  base.source.repo = "org/st";
  hub::Hub hub(c.shared());
  auto pin = fetch::make_pin(base, "main", hub);
  REQUIRE_MESSAGE(pin, pin.error().line());
  return *pin;
}

manifest::PinFile& first_shard(manifest::Pin& pin) {
  return *std::find_if(pin.files.begin(), pin.files.end(),
                       [](const auto& f) { return f.path.find("00001") != std::string::npos; });
}

}  // namespace

TEST_CASE("biases come as a small valid file, without the rest of their shards") {
  const Checkpoint c;
  const auto r = c.run(c.want({}, {"gate\\.bias$"}));
  REQUIRE_MESSAGE(r, r.error().line());
  const auto file = safetensors::File::open(c.dir / "small.safetensors");
  REQUIRE_MESSAGE(file, file.error().line());
  CHECK(file->header().tensors.size() == 2);
  CHECK(file->header().data_offset % 8 == 0);
  check_tensor(*file, c.a[1]);
  check_tensor(*file, c.a[3]);
  const auto& metadata = file->header().metadata;
  CHECK(std::find(metadata.begin(), metadata.end(), std::pair<std::string, std::string>("source_repo", "org/st")) !=
        metadata.end());
  // One header read and two ranges: never the second shard, never the megabyte between.
  CHECK(c.storage_bytes() <= 128 * kKiB + 512);
  for (const auto& e : c.hub->log()) CHECK(e.target.find("00002-of") == std::string::npos);
  const json::Value record = c.record(c.dir / "small.safetensors.record.json");
  CHECK(record.find("schema")->as_string() == "hub-tensors");
  const json::Value& item = record.find("items")->as_array().at(0);
  CHECK(item.find("sha256")->as_string() == codec::sha256(c.a[1].bytes).hex());
  CHECK(item.find("verified")->as_string() == "transport");
  CHECK_FALSE(std::filesystem::exists(c.dir / "small.safetensors.part"));
  CHECK_FALSE(std::filesystem::exists(c.dir / "small.safetensors.journal"));
}

TEST_CASE("a second run reads headers alone and writes nothing, and another wish does not overwrite") {
  const Checkpoint c;
  REQUIRE(c.run(c.want({"layers.0.big"})));
  const std::string record = *io::read_text(c.dir / "small.safetensors.record.json");
  c.hub->clear_log();
  REQUIRE(c.run(c.want({"layers.0.big"})));
  CHECK(c.storage_bytes() <= 128 * kKiB);
  CHECK(*io::read_text(c.dir / "small.safetensors.record.json") == record);
  auto other = c.want({"table"});
  const auto refused = c.run(other);
  REQUIRE(!refused);
  CHECK(refused.error().cls == "conflict");
  other.overwrite = true;
  REQUIRE(c.run(other));
  check_tensor(*safetensors::File::open(c.dir / "small.safetensors"), c.b[0]);
}

TEST_CASE("rows of a table, from the middle, with their place in the metadata") {
  const Checkpoint c;
  auto o = c.want({"empty"});
  o.selection.rows = {*fetch::parse_rows("table=200:450")};
  const auto r = c.run(o);
  REQUIRE_MESSAGE(r, r.error().line());
  const auto file = safetensors::File::open(c.dir / "small.safetensors");
  REQUIRE(file);
  auto want = c.b[0];
  want.shape = {250, 50};
  want.bytes = {want.bytes.begin() + 20'000, want.bytes.begin() + 45'000};
  check_tensor(*file, want);
  check_tensor(*file, c.b[1]);
  for (const char* bad : {"table=450:200", "table=1:1001", "table=5", "=1:2"}) {
    const auto rows = fetch::parse_rows(bad);
    o.selection.rows = {rows ? *rows : fetch::RowRange{}};
    o.overwrite = true;
    CHECK_MESSAGE((!rows || !c.run(o)), bad);
  }
}

TEST_CASE("raw files and sparse shards") {
  const Checkpoint c;
  auto o = c.want({"layers.1.gate.bias", "table"});
  o.out.clear();
  o.raw_dir = c.dir / "raw";
  REQUIRE(c.run(o));
  const std::string raw = *io::read_text(c.dir / "raw/layers.1.gate.bias.bin");
  CHECK(codec::sha256(raw) == codec::sha256(c.a[3].bytes));
  CHECK(c.record(c.dir / "raw/tensors.json").find("items")->as_array().size() == 2);
  o.raw_dir.clear();
  o.sparse_dir = c.dir / "sparse";
  REQUIRE(c.run(o));
  const auto whole = safetensors::read_header(c.shard(0));
  const std::string sparse = *io::read_text(c.dir / "sparse/model-00001-of-00002.safetensors.sparse");
  const std::string original = *io::read_text(c.shard(0));
  REQUIRE(sparse.size() == original.size());
  CHECK(sparse.substr(0, whole->data_offset) == original.substr(0, whole->data_offset));
  CHECK(sparse.substr(sparse.size() - 256) == original.substr(original.size() - 256));
  o.raw_dir = c.dir / "raw";
  CHECK(c.run(o).error().code == Code::kUsage);  // two places
}

TEST_CASE("a header longer than the first read, and one over the limit") {
  const Checkpoint c;
  std::vector<safetensors::TensorData> many;
  for (int i = 0; i < 3000; ++i)
    many.push_back({"model.layers.with.a.long.name." + std::to_string(i),
                    tensor::DType::kU8,
                    {8},
                    some_bytes(8, static_cast<uint64_t>(i))});
  REQUIRE(safetensors::write_file(c.dir / "hub/org/st/model-00002-of-00002.safetensors", many));
  std::filesystem::remove(c.dir / "hub/org/st/model.safetensors.index.json");  // without an index: every shard is asked
  c.hub->reload();
  REQUIRE(c.run(c.want({many[2999].name})));
  check_tensor(*safetensors::File::open(c.dir / "small.safetensors"), many[2999]);

  std::string bytes = *io::read_text(c.shard(0));
  store_le<uint64_t>(bytes.data(), 1'000'000'000'000);
  c.write("hub/org/st/model-00001-of-00002.safetensors", bytes);
  c.hub->reload();
  auto o = c.want({"layers.0.big"});
  o.overwrite = true;
  CHECK(c.run(o).error().code == Code::kContent);
}

TEST_CASE("what is not there, and what no regex is") {
  const Checkpoint c;
  CHECK(c.run(c.want({"layers.9.gate.bias"})).error().code == Code::kMissing);
  CHECK(c.run(c.want({}, {"router"})).error().code == Code::kMissing);
  CHECK(c.run(c.want({}, {"("})).error().code == Code::kUsage);
  CHECK(c.run(c.want({})).error().code == Code::kUsage);
  CHECK_FALSE(std::filesystem::exists(c.dir / "small.safetensors"));
}

TEST_CASE("a pinned tensor digest proves content, and a wrong one is exit 8 without a file") {
  const Checkpoint c;
  manifest::Pin pin = pin_of(c);
  const auto header = safetensors::read_header(c.shard(0));
  const auto* info = header->find("layers.0.gate.bias");
  first_shard(pin).safetensors = {
      {header->data_offset, codec::sha256(io::read_text(c.shard(0))->substr(0, header->data_offset)).hex(), 4}};
  first_shard(pin).tensors = {{info->name, "F32", {64}, info->begin, info->end, codec::sha256(c.a[1].bytes).hex()}};
  c.write("pin.json", manifest::write(pin));
  auto o = c.want({"layers.0.gate.bias"});
  o.what = (c.dir / "pin.json").string();
  const auto good = c.run(o);
  REQUIRE_MESSAGE(good, good.error().line());
  const json::Value record = c.record(c.dir / "small.safetensors.record.json");
  CHECK(record.find("items")->as_array()[0].find("verified")->as_string() == "pinned");
  CHECK(record.find("items")->as_array()[0].find("header_verified")->as_string() == "pinned");
  CHECK(record.find("inputs")->as_array().size() == 1);

  first_shard(pin).tensors[0].sha256 = std::string(64, '0');
  c.write("pin.json", manifest::write(pin));
  o.out = c.dir / "other.safetensors";
  CHECK(c.run(o).error().cls == "digest_mismatch");
  CHECK_FALSE(std::filesystem::exists(c.dir / "other.safetensors"));
  first_shard(pin).safetensors->header_sha256 = std::string(64, '0');
  c.write("pin.json", manifest::write(pin));
  const auto wrong_header = c.run(o);
  REQUIRE(!wrong_header);
  CHECK(wrong_header.error().what.find("ST12") != std::string::npos);
}

TEST_CASE("transfer faults are survived, and a constant tensor is refused") {
  const Checkpoint c;
  for (const char* action :
       {"drop_after", "close_after", "status", "ignore_range", "wrong_content_range", "short", "long"}) {
    c.hub->clear_faults();
    c.fault(action, std::string(action) == "status" ? 503 : 20'000, 2);
    auto o = c.want({"layers.0.big", "table"});
    o.out = c.dir / (std::string(action) + ".safetensors");
    const auto r = c.run(o);
    REQUIRE_MESSAGE(r, action << ": " << r.error().line());
    check_tensor(*safetensors::File::open(o.out), c.a[2]);
  }
  const std::vector<safetensors::TensorData> zeros = {{"z", tensor::DType::kU8, {5000}, std::vector<std::byte>(5000)}};
  REQUIRE(safetensors::write_file(c.dir / "hub/org/st/model-00002-of-00002.safetensors", zeros));
  std::filesystem::remove(c.dir / "hub/org/st/model.safetensors.index.json");
  c.hub->reload();
  auto o = c.want({"z"});
  CHECK(c.run(o).error().cls == "constant");
  o.allow_constant = true;
  REQUIRE(c.run(o));
}

TEST_CASE("a broken run goes on where it was") {
  const Checkpoint c;
  auto o = c.want({"layers.0.big", "table"});
  // Headers are answered (128 KiB or the whole file), the table's own range never is.
  loopback_hub::Fault late;
  late.action = "status";
  late.n = 503;
  late.host = "cdn";
  late.path_contains = "00002-of";
  late.nth = 2;
  c.hub->add_fault(late);
  o.connections = 1;
  REQUIRE(!c.run(o));
  CHECK(std::filesystem::exists(c.dir / "small.safetensors.journal"));
  c.hub->clear_faults();
  c.hub->clear_log();
  REQUIRE(c.run(o));
  uint64_t first_shard_bytes = 0;
  for (const auto& e : c.hub->log())
    first_shard_bytes += e.host == "cdn" && e.target.find("00001-of") != std::string::npos ? e.bytes : 0;
  CHECK(first_shard_bytes <= 128 * kKiB);  // its header again, the megabyte not
  check_tensor(*safetensors::File::open(c.dir / "small.safetensors"), c.a[2]);
}

TEST_CASE("requests join neighbours over small gaps and split large ranges") {
  hub::FileSource s("org/x", std::string(40, '0'), {}), t("org/x", std::string(40, '0'), {});
  const fetch::RangeLimits limits{10, 100};
  const auto requests = fetch::plan_requests(
      {{&s, 0, 5, 0, 0}, {&s, 12, 20, 0, 5}, {&s, 31, 40, 0, 13}, {&s, 40, 260, 1, 0}, {&t, 261, 262, 1, 220}}, limits);
  REQUIRE(requests.size() == 5);
  CHECK(requests[0].begin == 0);
  CHECK(requests[0].end == 20);
  CHECK(requests[0].segments.size() == 2);
  CHECK(requests[1].begin == 31);
  CHECK(requests[1].end == 131);
  CHECK(requests[1].segments[1].end == 131);
  CHECK(requests[2].begin == 131);
  CHECK(requests[2].segments[0].at == 91);
  CHECK(requests[3].end == 260);
  CHECK(requests[4].source == &t);
}
