// See demangle.h. The text of __cxa_demangle() is cut: it has no option to leave anything out.
#include "image/demangle.h"

#include <cxxabi.h>

#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace auxtrail::image {
namespace {

constexpr std::string_view kOperator = "operator";

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool opens(char c) { return c == '(' || c == '<' || c == '{' || c == '['; }
bool closes(char c) { return c == ')' || c == '>' || c == '}' || c == ']'; }

bool strip_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// "f(int) [clone .cold] [clone .isra.0]"
void strip_clones(std::string_view& text) {
  while (text.ends_with(']')) {
    const size_t start = text.rfind(" [clone ");
    if (start == std::string_view::npos) return;
    text = text.substr(0, start);
  }
}

// "(int, char) const &" at the end. False if there is none, and the text stays what it was.
bool strip_parameters(std::string_view& text) {
  std::string_view rest = text;
  while (strip_suffix(rest, " const") || strip_suffix(rest, " volatile") ||
         strip_suffix(rest, " &&") || strip_suffix(rest, " &") || strip_suffix(rest, " noexcept")) {
  }
  if (!rest.ends_with(')')) return false;
  size_t depth = 0;
  for (size_t at = rest.size(); at-- > 0;) {
    if (rest[at] == ')') ++depth;
    if (rest[at] != '(' || --depth != 0) continue;
    rest = rest.substr(0, at);
    // An operator's own name; or a function that returns a function, which is not told so simply.
    if (rest.empty() || rest.ends_with(kOperator) || rest.ends_with(')')) {
      if (!rest.ends_with(std::string(kOperator) + "()")) return false;
    }
    text = rest;
    return true;
  }
  return false;
}

// What of "void foo<int>" comes before the name: the end of the last blank outside of brackets and
// before an operator's name.
size_t name_start(std::string_view text) {
  size_t start = 0;
  size_t depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (depth == 0 && text.substr(at).starts_with(kOperator) &&
        (at == 0 || !is_name_char(text[at - 1]))) {
      const size_t behind = at + kOperator.size();
      if (behind == text.size() || !is_name_char(text[behind])) break;
    }
    if (opens(text[at])) ++depth;
    if (closes(text[at]) && depth != 0) --depth;
    if (text[at] == ' ' && depth == 0) start = at + 1;
  }
  return start;
}

std::string shortened(std::string_view text) {
  strip_clones(text);
  // "non-virtual thunk to f()" and its like stay whole, in perf as well.
  const bool is_phrase =
      text.find(" to ") != std::string_view::npos || text.find(" for ") != std::string_view::npos;
  if (is_phrase || !strip_parameters(text)) return std::string(text);
  return std::string(text.substr(name_start(text)));
}

std::optional<std::string> demangled(const std::string& raw_name) {
  int status = 0;
  char* text = abi::__cxa_demangle(raw_name.c_str(), nullptr, nullptr, &status);
  if (text == nullptr) return std::nullopt;
  std::string result(text);
  std::free(text);
  return result;
}

}  // namespace

std::string demangle(const std::string& raw_name) {
  constexpr std::string_view kPltSuffix = "@plt";
  if (!raw_name.starts_with("_Z")) return raw_name;
  if (raw_name.ends_with(kPltSuffix)) {
    return demangle(raw_name.substr(0, raw_name.size() - kPltSuffix.size())) +
           std::string(kPltSuffix);
  }
  const auto text = demangled(raw_name);
  return text ? shortened(*text) : raw_name;
}

}  // namespace auxtrail::image
