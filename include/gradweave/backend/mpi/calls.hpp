/// @file
/// How MPI is called: its errors as sync_error with its own words, its types, and the threads that it lets call.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include <mpi.h>

#include <gradweave/assert.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>

namespace gradweave::backend::mpi {

/// MPI's words for one of its error codes.
inline std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    return "error " + std::to_string(code);
  }
  return {text.data(), static_cast<std::size_t>(length)};
}

/// Throws sync_error with MPI's words where `call` did not succeed. Communicators of ours return errors; by default MPI
/// would end the process.
inline void check(int code, const char* call) {
  if (code != MPI_SUCCESS) [[unlikely]] {
    throw sync_error({errc::internal, -1, -1, -1, {}, std::string(call) + ": " + error_text(code)});
  }
}

/// The type by which MPI adds elements of a kind. None below 32 bits: MPI knows no float16 and no bfloat16, and would round
/// (or wrap) at every hop.
inline std::optional<MPI_Datatype> added_by_mpi(element_kind kind) {
  switch (kind) {
    case element_kind::float32: return MPI_FLOAT;
    case element_kind::float64: return MPI_DOUBLE;
    case element_kind::int32: return MPI_INT32_T;
    case element_kind::int64: return MPI_INT64_T;
    case element_kind::uint32: return MPI_UINT32_T;
    case element_kind::uint64: return MPI_UINT64_T;
    default: return std::nullopt;
  }
}

inline const char* thread_level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
    default: return "MPI_THREAD_MULTIPLE";
  }
}

/// Throws contract_violation where MPI, which has the level `provided`, may not be called as it will be. `only_caller`: nobody
/// but gradweave, which never calls from two threads at once, calls it meanwhile.
inline void require_thread_level(int provided, bool only_caller) {
  if (provided < (only_caller ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE)) {
    violate(std::string("mpi: MPI was initialized with ") + thread_level_name(provided) +
            ", but a lane calls it from a thread of its own; " +
            (only_caller
                 ? "pass MPI_THREAD_SERIALIZED or more to MPI_Init_thread"
                 : "pass MPI_THREAD_MULTIPLE to MPI_Init_thread (or MPI_THREAD_SERIALIZED, where nobody else calls "
                   "MPI as long as a backend lives, and set options::only_caller)"));
  }
}

/// What a communicator's rank and size are.
inline int rank_in(MPI_Comm communicator) {
  int rank = 0;
  check(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  return rank;
}
inline int size_of(MPI_Comm communicator) {
  int size = 1;
  check(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  return size;
}

/// "Open MPI v4.1.4": which MPI this is, to its first comma or line end.
inline std::string library_name() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  const std::string name(text.data(), static_cast<std::size_t>(length));
  std::string line = name.substr(0, name.find_first_of(",\n"));
  for (char& each : line) {
    each = each == '\t' ? ' ' : each;
  }
  return line;
}

}  // namespace gradweave::backend::mpi
