/* Linked with every object of one tower's rooms and nothing of the other's: that it links is the
 * test. */
int main(void)
{
    return 0;
}
