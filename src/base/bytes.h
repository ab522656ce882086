// Little-endian reading and writing with every bound checked.
//
// ByteReader never reads past its span: a short read sets failed() and yields zeros, so a parser
// may read a whole structure and check once. ByteWriter appends to a vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace auxtrail {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T read() {
    T value{};
    if (remaining() < sizeof(T)) {
      fail();
      return value;
    }
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }
  uint8_t u8() { return read<uint8_t>(); }
  uint16_t u16() { return read<uint16_t>(); }
  uint32_t u32() { return read<uint32_t>(); }
  uint64_t u64() { return read<uint64_t>(); }

  std::span<const std::byte> take(size_t count) {
    if (remaining() < count) {
      fail();
      return {};
    }
    auto part = bytes_.subspan(offset_, count);
    offset_ += count;
    return part;
  }
  void skip(size_t count) { (void)take(count); }

  // A NUL-ended string in the next `field_size` bytes; the NUL may be missing.
  std::string_view text(size_t field_size) {
    auto field = take(field_size);
    const auto* chars = reinterpret_cast<const char*>(field.data());
    return {chars, field.empty() ? 0 : ::strnlen(chars, field.size())};
  }

  [[nodiscard]] size_t offset() const { return offset_; }
  [[nodiscard]] size_t remaining() const { return bytes_.size() - offset_; }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  void fail() {
    failed_ = true;
    offset_ = bytes_.size();
  }
  std::span<const std::byte> bytes_;
  size_t offset_ = 0;
  bool failed_ = false;
};

class ByteWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void write(const T& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof(T));
  }
  void u8(uint8_t value) { write(value); }
  void u16(uint16_t value) { write(value); }
  void u32(uint32_t value) { write(value); }
  void u64(uint64_t value) { write(value); }
  void append(std::span<const std::byte> part) {
    bytes_.insert(bytes_.end(), part.begin(), part.end());
  }
  // The characters, a NUL, and zeros up to a multiple of `alignment` bytes.
  void text(std::string_view chars, size_t alignment = 8) {
    append(std::as_bytes(std::span(chars.data(), chars.size())));
    u8(0);
    pad(alignment);
  }
  void pad(size_t alignment) {
    while (bytes_.size() % alignment != 0) u8(0);
  }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::byte>& buffer() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace auxtrail
