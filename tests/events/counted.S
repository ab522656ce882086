# A program whose instructions and branches can be counted by hand: what the trace unit counts must be the same.
#   counted N         N rounds
#   counted N fork    in a child
#   counted N thread  in another thread
# A round of number i, with c = i & 15: 25 + 2c instructions, one more if i is odd, and 10 + c branches. A repeated
# string instruction is one, a system call is one and no branch.
        .text
        .globl  main, rounds, rounds_end
main:   pushq   %rbx
        pushq   %r12
        subq    $24, %rsp
        movq    16(%rsi), %r12
        movq    8(%rsi), %rdi
        call    atoi@PLT
        movl    %eax, %ebx
        testq   %r12, %r12
        je      in_thread
        cmpb    $'t', (%r12)
        je      new_thread

        call    fork@PLT
        testl   %eax, %eax
        je      in_child
        xorl    %edi, %edi
        call    wait@PLT
        jmp     done

new_thread:
        leaq    8(%rsp), %rdi
        xorl    %esi, %esi
        leaq    awaited(%rip), %rdx
        movl    %ebx, %ecx
        call    pthread_create@PLT
        movq    8(%rsp), %rdi
        xorl    %esi, %esi
        call    pthread_join@PLT
        jmp     done

in_child:
        movl    %ebx, %edi
        call    awaited
        jmp     done

in_thread:
        movl    %ebx, %edi
        call    thread
done:   xorl    %eax, %eax
        addq    $24, %rsp
        popq    %r12
        popq    %rbx
        ret

# It begins natively. Some 50 ms of few instructions, for the unit to enter.
awaited:
        movl    %edi, %edx
        movl    $1000, %esi
1:      leaq    large(%rip), %rdi
        movl    $0x100000, %ecx
        rep     stosb
        decl    %esi
        jnz     1b
        movl    %edx, %edi
thread: pushq   %rbx
        movl    %edi, %ebx
rounds: movl    %ebx, %ecx
        andl    $15, %ecx
1:      decl    %ecx
        jns     1b
        call    leaf
        leaq    leaf(%rip), %rax
        call    *%rax
        jmp     2f
        ud2
2:      leaq    buffer(%rip), %rdi
        movl    $9, %ecx
        rep     stosb
        testl   $1, %ebx
        je      3f
        incl    %esi
3:      movl    $110, %eax              # getppid
        syscall
        decl    %ebx
        jnz     rounds
        popq    %rbx
        xorl    %eax, %eax
        ret

leaf:   pushq   %rbx
        popq    %rbx
        jmp     4f
        ud2
4:      ret
rounds_end:

        .bss
buffer: .skip   16
large:  .skip   0x100000
        .section .note.GNU-stack,"",@progbits
