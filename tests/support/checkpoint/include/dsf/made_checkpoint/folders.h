#pragma once
// The checkpoint of seed 1 that the build made once for all tests. Read-only: copy a folder before damaging it.
// Linking dsf::made_checkpoint_folders makes the build write them first.
#include <filesystem>

namespace dsf::made_checkpoint {

std::filesystem::path native_folder();       // the release's layout
std::filesystem::path exl3_folder();         // its EXL3 pack
std::filesystem::path dequantised_folder();  // the pack's weights as plain F32

// Copies a folder of files, for tests that change it.
void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace dsf::made_checkpoint
